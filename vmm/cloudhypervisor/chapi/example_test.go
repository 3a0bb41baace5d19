package chapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"

	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
)

// A VM with a tap that the caller has open.
func Example() {
	start := func(ctx context.Context, tap *os.File) error {
		client := chapi.New(func(ctx context.Context) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", "/run/vm/api.sock")
		})
		err := client.Create(ctx, &chapi.VMConfig{
			Memory:  &chapi.Memory{Zones: []chapi.MemoryZone{{ID: "ram0", Size: 1 << 30, File: "/run/vm/ram", Shared: true}}},
			Payload: &chapi.Payload{Kernel: "/boot/vmlinux", Cmdline: "console=ttyS0"},
			Disks:   []chapi.Disk{{PCI: chapi.PCI{ID: "disk0"}, Path: "/disks/one.img", Type: chapi.ImageRaw}},
			Serial:  &chapi.Console{Mode: chapi.ConsoleSocket, Socket: "/run/vm/serial.sock"},
			// Said, or the VMM takes its own terminal for it.
			Console: &chapi.Console{Mode: chapi.ConsoleOff},
		})
		if err != nil {
			return err
		}
		if _, err := client.AddNet(ctx, chapi.Net{PCI: chapi.PCI{ID: "net0"}}, tap); err != nil {
			return err
		}
		return client.Boot(ctx)
	}
	_ = start
}

// The event monitor's pipe is read at all times.
func ExampleEvents() {
	follow := func(pipe *os.File) error {
		events := chapi.NewEvents(pipe, chapi.DefaultMaxEvent)
		for {
			event, err := events.Next()
			if errors.Is(err, io.EOF) {
				return nil // the VMM has ended
			}
			if err != nil {
				return fmt.Errorf("following the VM: %w", err)
			}
			slog.Info("event", "source", event.Source, "name", event.Name, "since", event.Since)
		}
	}
	_ = follow
}
