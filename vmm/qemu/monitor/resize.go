package monitor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/qemu/qmp"
)

var _ vmm.Resizer = (*monitor)(nil)

// Size asks for vCPUs and balloon.
func (m *monitor) Size(ctx context.Context) (vmm.Size, error) {
	var size vmm.Size
	var cpus []struct{}
	if err := m.client.Execute(ctx, "query-cpus-fast", nil, &cpus); err != nil {
		return size, err
	}
	size.VCPUs = len(cpus)
	var balloon struct {
		Actual count `json:"actual"`
	}
	err := m.client.Execute(ctx, "query-balloon", nil, &balloon)
	if err != nil && !errors.Is(err, qmp.DeviceNotActive) { // there is none
		return size, err
	}
	size.Memory = balloon.Actual.value
	return size, nil
}

// SetMemory implements vmm.Resizer.
func (m *monitor) SetMemory(ctx context.Context, bytes uint64) error {
	return m.client.Execute(ctx, "balloon", map[string]uint64{"value": bytes}, nil)
}

// place is where a vCPU can be plugged in (HotpluggableCPU in qapi/machine.json).
type place struct {
	Type  string                     `json:"type"`
	Count int                        `json:"vcpus-count"`
	Props map[string]json.RawMessage `json:"props"`
	// Path of the vCPU that is there; empty: none is.
	Path string `json:"qom-path"`
}

// id is that of a vCPU that is plugged in there: by its place, which it has again in
// another process.
func (p place) id() string {
	var id strings.Builder
	id.WriteString("vcpu")
	for _, name := range []string{"socket-id", "die-id", "cluster-id", "module-id", "core-id", "thread-id"} {
		if number, err := strconv.ParseUint(string(p.Props[name]), 10, 32); err == nil {
			fmt.Fprintf(&id, "-%d", number)
		}
	}
	return id.String()
}

// places are all, in the order in which a machine is started with them.
func (m *monitor) places(ctx context.Context) ([]place, error) {
	var all []place
	if err := m.client.Execute(ctx, "query-hotpluggable-cpus", nil, &all); err != nil {
		return nil, err
	}
	slices.Reverse(all) // QEMU lists the last first
	return all, nil
}

// SetVCPUs implements vmm.Resizer. The vCPUs that are there are always the first, as
// at a start with as many.
func (m *monitor) SetVCPUs(ctx context.Context, vcpus int) error {
	places, err := m.places(ctx)
	if err != nil {
		return err
	}
	have := 0
	for _, p := range places {
		if have+p.Count > vcpus {
			break
		}
		have += p.Count
		if p.Path != "" {
			continue
		}
		args := map[string]any{"driver": p.Type, "id": p.id()}
		for name, value := range p.Props {
			args[name] = value
		}
		if err := m.client.Execute(ctx, "device_add", args, nil); err != nil {
			return err
		}
	}
	if have < vcpus {
		return fmt.Errorf("QEMU has places for %d vCPUs, not for %d", have, vcpus)
	}
	return m.removeVCPUs(ctx, places, vcpus)
}

// removeVCPUs asks for the last first.
func (m *monitor) removeVCPUs(ctx context.Context, places []place, keep int) error {
	first := 0
	for ; first < len(places) && keep > 0; first++ {
		keep -= places[first].Count
	}
	for i := len(places) - 1; i >= first; i-- {
		if places[i].Path == "" {
			continue
		}
		if err := m.removeVCPU(ctx, places[i].Path); err != nil {
			return err
		}
	}
	return nil
}

func (m *monitor) removeVCPU(ctx context.Context, path string) error {
	events := m.client.Subscribe("DEVICE_DELETED", "DEVICE_UNPLUG_GUEST_ERROR", "ACPI_DEVICE_OST")
	defer events.Close()
	err := m.client.Execute(ctx, "device_del", map[string]string{"id": path}, nil)
	var refused *qmp.Error
	switch {
	case errors.Is(err, qmp.DeviceNotFound):
		return nil
	case errors.As(err, &refused) && !strings.Contains(refused.Desc, "in the process of unplug"):
		// A guest that has no driver for it yet has not reported it to the machine.
		return fmt.Errorf("%w: %w", vmm.ErrGuestKeeps, err)
	case err != nil && refused == nil:
		return keeps(ctx, err)
	}
	for {
		// Asked beforehand: it may be gone by now.
		there, err := m.hasVCPU(ctx, path)
		if err != nil || !there {
			return keeps(ctx, err)
		}
		event, err := events.Next(ctx)
		var missed *qmp.MissedError
		if err != nil && !errors.As(err, &missed) {
			return keeps(ctx, err)
		}
		if event.Name == "DEVICE_UNPLUG_GUEST_ERROR" {
			return fmt.Errorf("%w: it has refused to", vmm.ErrGuestKeeps)
		}
	}
}

func keeps(ctx context.Context, err error) error {
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", vmm.ErrGuestKeeps, err)
	}
	return err
}

func (m *monitor) hasVCPU(ctx context.Context, path string) (bool, error) {
	places, err := m.places(ctx)
	return slices.ContainsFunc(places, func(p place) bool { return p.Path == path }), err
}
