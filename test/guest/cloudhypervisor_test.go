package guest_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/test/guest"
	"github.com/vmlet/vmlet/test/suites"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
)

// follower is a console in a socket that is bound anew with each boot: it takes
// the guest's lines of one connection after the other.
type follower struct {
	path string
	mu   sync.Mutex
	conn net.Conn
}

// Write types on the connection that there is now.
func (f *follower) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.conn.Write(b)
}

// follow hands on all lines until the VMM has gone.
func (f *follower) follow(gone <-chan struct{}, lines chan<- string) {
	defer close(lines)
	for {
		conn, err := net.Dial("unix", f.path)
		if err != nil {
			select {
			case <-gone:
				return
			case <-time.After(time.Millisecond):
			}
			continue
		}
		f.mu.Lock()
		f.conn = conn
		f.mu.Unlock()
		for line := range readLines(conn) {
			lines <- line
		}
		conn.Close()
	}
}

// bootCloudHypervisor boots the PVH guest in the cloud-hypervisor of this
// machine; the test is skipped where there is none.
func bootCloudHypervisor(t *testing.T, o guest.PVHOptions) (*machine, *chapi.Client) {
	t.Helper()
	program, err := exec.LookPath("cloud-hypervisor")
	if err != nil {
		t.Skipf("not with cloud-hypervisor: %v", err)
	}
	if len(accelerators(t)) < 2 {
		t.Skip("cloud-hypervisor runs under KVM only")
	}
	elf, err := guest.PVH(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := suites.Wait(t.Context(), t, patience)
	t.Cleanup(cancel)
	dir, err := os.MkdirTemp("", "ch") // the names of sockets must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	api := filepath.Join(dir, "api")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: api, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	listener.SetUnlinkOnClose(false)
	inherited, err := listener.File()
	if err != nil {
		t.Fatal(err)
	}
	defer inherited.Close()

	console, gone, lines := &follower{path: filepath.Join(dir, "serial")}, make(chan struct{}), make(chan string, 1<<16)
	m := &machine{t: t, ctx: ctx, console: console, lines: lines}
	m.cmd = exec.CommandContext(ctx, program, "--api-socket", "fd=3")
	m.cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	m.cmd.ExtraFiles = []*os.File{inherited}
	m.cmd.Stderr = &testWriter{t, "cloud-hypervisor"}
	if err := m.cmd.Start(); err != nil {
		t.Fatalf("starting %s: %v", program, err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { cancel(); m.cmd.Wait(); <-ended })
	go func() { defer close(ended); console.follow(gone, lines) }()
	go func() { // its end, without taking its status from who waits for it
		unix.Waitid(unix.P_PID, m.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		close(gone)
	}()

	client := chapi.New(func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", api)
	})
	if err := client.Create(ctx, &chapi.VMConfig{
		CPUs:    &chapi.CPUs{Boot: 1, Max: 4},
		Memory:  &chapi.Memory{Size: 64 << 20, Shared: true},
		Payload: &chapi.Payload{Kernel: file(t, elf)},
		Serial:  &chapi.Console{Mode: chapi.ConsoleSocket, Socket: console.path},
		Console: &chapi.Console{Mode: chapi.ConsoleOff},
	}); err != nil {
		t.Fatal(err)
	}
	if err := client.Boot(ctx); err != nil {
		t.Fatal(err)
	}
	return m, client
}

func TestPVHCloudHypervisor(t *testing.T) {
	pattern := guest.Pattern{Address: 16 << 20, MiB: 4, Seed: 7}
	m, client := bootCloudHypervisor(t, guest.PVHOptions{Memory: pattern})
	m.expect(".*vmlet guest up")
	m.expect("filled 4")
	m.expect("count 1")
	m.send("x")
	m.expect("echo x")
	m.send("v")
	m.expect(fmt.Sprintf("verified %08x", pattern.Sum()))
	m.send("r")
	m.expect(".*vmlet guest up")
	m.expect("count 0")
	if err := client.PowerButton(m.ctx); err != nil {
		t.Fatal(err)
	}
	m.expect("power button")
	m.gone()
}

func TestPVHCloudHypervisorIgnoresPowerButton(t *testing.T) {
	m, client := bootCloudHypervisor(t, guest.PVHOptions{IgnorePowerButton: true})
	m.expect("count 0")
	for range 2 {
		if err := client.PowerButton(m.ctx); err != nil {
			t.Fatal(err)
		}
		m.expect("power button")
		m.expect("count .*")
	}
	m.send("q")
	m.gone()
}

// TestPVHCloudHypervisorLetsGo adds and removes a disk and vCPUs.
func TestPVHCloudHypervisorLetsGo(t *testing.T) {
	for _, keep := range []bool{false, true} {
		t.Run(fmt.Sprintf("keep %t", keep), func(t *testing.T) {
			m, client := bootCloudHypervisor(t, guest.PVHOptions{KeepDevices: keep})
			m.expect("count 0")
			if _, err := client.AddDisk(m.ctx, chapi.Disk{PCI: chapi.PCI{ID: "disk1"}, Path: file(t, make([]byte, 1<<20)), Type: chapi.ImageRaw}); err != nil {
				t.Fatal(err)
			}
			if err := client.RemoveDevice(m.ctx, "disk1"); err != nil {
				t.Fatal(err)
			}
			for _, n := range []uint32{4, 2} {
				if err := client.Resize(m.ctx, chapi.Resize{VCPUs: &n}); err != nil {
					t.Fatal(err)
				}
			}
			if keep {
				m.send("x") // once it has answered it has looked at the event as well
				m.expect("echo x")
				m.expect("count .*")
			}
			for {
				info, err := client.Info(m.ctx)
				if err != nil {
					t.Fatal(err)
				}
				_, there := info.Devices["disk1"]
				three := uint32(3)
				busy := errors.Is(client.Resize(m.ctx, chapi.Resize{VCPUs: &three}), chapi.ErrBusy)
				if there == keep && busy == keep {
					break
				}
				if keep {
					t.Fatalf("disk1 is there: %t; vCPUs are leaving: %t", there, busy)
				}
				time.Sleep(time.Millisecond)
			}
			m.send("q")
			m.gone()
		})
	}
}
