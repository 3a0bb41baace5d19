package probe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/internal/fingerprint"
	"github.com/vmlet/vmlet/vmm/qemu"
)

// trial is a hypervisor that the program is tried with, and what came of it.
type trial struct {
	hypervisor.Hypervisor
	accelerator qemu.Accelerator
	host        definition // the best CPU that a guest can have
	base        *base      // what does not depend on the accelerator, where it was asked
	err         error      // the program can't be used with this one
	files       []string   // what the program was made of
}

// base is what does not depend on the accelerator.
type base struct {
	answer
	models []definition
}

// probe runs the program once for each accelerator that may be had, side by
// side. What does not depend on the accelerator is asked of one that needs no
// device, which is the least that can fail.
func (q *Program) probe(ctx context.Context) (*answer, error) {
	trials := q.trials()
	if len(trials) == 0 {
		return nil, errors.New("QEMU: there is no hypervisor to try it with: the node has none of those that this agent knows")
	}
	first := max(0, slices.IndexFunc(trials, func(t *trial) bool { return t.Device() == "" }))
	var group sync.WaitGroup
	for i, t := range trials {
		group.Go(func() { q.try(ctx, t, i == first) })
	}
	group.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b, err := q.base(ctx, trials, first)
	if err != nil {
		return nil, err
	}
	d := &b.Details
	d.Firmware = q.firmware(d.Arch)
	if trials[first].err != nil && slices.Contains(d.BuiltAccelerators, trials[first].Accelerator()) {
		// What another accelerator makes of the models is not what they are: no host
		// model rather than another one than the last time.
		b.models = nil
	}
	d.Accelerators = make(map[string]qemu.Accelerator, len(trials))
	for _, t := range trials {
		describe(&t.accelerator, t.host, b.models)
		d.Accelerators[t.Name()] = t.accelerator
		b.Files = append(b.Files, t.files...)
		b.passing = b.passing || t.err != nil && !lasting(t.err)
	}
	slices.Sort(b.Files)
	b.Files = slices.Compact(b.Files)
	// What ran is not what would run now.
	b.passing = b.passing || slices.ContainsFunc(b.Files, func(f string) bool { return strings.HasSuffix(f, goneSuffix) })
	b.FilesKey = fingerprint.All(b.Files)
	return &b.answer, nil
}

// trials leaves out hypervisors whose device isn't there.
func (q *Program) trials() []*trial {
	var out []*trial
	for _, h := range q.config.Hypervisors {
		if device := h.Device(); device != "" {
			if _, err := os.Stat(device); err != nil {
				continue
			}
		}
		out = append(out, &trial{Hypervisor: h})
	}
	return out
}

// try asks the program under one accelerator.
func (q *Program) try(ctx context.Context, t *trial, base bool) {
	t.accelerator.Name = t.Accelerator()
	t.err = q.ask(ctx, t, base)
	if t.err != nil {
		t.accelerator = qemu.Accelerator{Name: t.Accelerator(), Failure: t.err.Error()}
	}
}

func (q *Program) ask(ctx context.Context, t *trial, base bool) error {
	// The program dies with the thread that started it, so that must stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	qemu, err := startBare(ctx, q.config.Binary, t.Accelerator())
	if err != nil {
		return err
	}
	asking := asker{ctx: ctx, client: qemu.client}
	if base {
		t.base = asking.base(q.config.Hypervisors, t.Device() == "")
	}
	t.accelerator, t.host = asking.accelerator(t.Accelerator())
	t.files = loaded(qemu.cmd.Process.Pid) // now: it loads modules as they are asked for
	qemu.stop()
	if asking.err != nil {
		t.base = nil
		return qemu.explain(asking.err)
	}
	return nil
}

// base is what the first said. If it can't be had (a QEMU without TCG) another
// that works is asked once more.
func (q *Program) base(ctx context.Context, trials []*trial, first int) (*base, error) {
	if b := trials[first].base; b != nil {
		return b, nil
	}
	for _, t := range trials {
		if t.err != nil {
			continue
		}
		if q.try(ctx, t, true); t.base != nil {
			return t.base, nil
		}
	}
	return nil, trials[first].err
}

// base asks what does not depend on the accelerator. ownVendor: QEMU shows each
// CPU model's own vendor, as it does without a hypervisor, and not the host's.
func (a *asker) base(hypervisors []hypervisor.Hypervisor, ownVendor bool) *base {
	out := new(base)
	greeting := a.client.Greeting()
	out.Version, out.Details.Package = greeting.Version.String(), greeting.Version.Package
	d := &out.Details
	d.Arch = a.arch()
	d.Machines = a.machines()
	d.Devices = a.devices(d.Arch)
	d.BuiltAccelerators, d.DeviceAccelerators = a.built(hypervisors)
	d.MigrationCapabilities = a.migrationCapabilities()
	ram, _ := a.properties("memory-backend-file")
	d.ReadOnlyMemory = slices.Contains(ram, "rom")
	d.MemoryOffset = slices.Contains(ram, "offset")
	d.HostNodes = slices.Contains(ram, "host-nodes")
	d.MigrateFile = a.migrateFile()
	out.models = a.definitions(a.models(), ownVendor)
	return out
}

func (a *asker) fail(format string, args ...any) {
	if a.err == nil {
		a.err = fmt.Errorf(format, args...)
	}
}
