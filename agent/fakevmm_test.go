package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"golang.org/x/sync/semaphore"
)

// fakeVMM plans anything.
type fakeVMM struct {
	w        *World
	checkErr error
	refuses  spec.FieldErrors // of any specification
	lazy     bool
	folder   bool // it writes snapshots to a folder of its own
}

func (v *fakeVMM) Name() string { return "qemu" }
func (v *fakeVMM) Info(context.Context) (vmm.Info, error) {
	return vmm.Info{Name: "qemu", Version: "7.2.0", Binary: "/bin/qemu", LazyRestore: v.lazy}, v.w.step("info")
}
func (v *fakeVMM) Plan(r vmm.PlanRequest) (*plan.Plan, error) {
	if err := v.w.step("plan"); err != nil {
		return nil, err
	}
	if err := v.refuses.Err(); err != nil {
		return nil, err
	}
	p := &plan.Plan{
		Name: r.Spec.GetName(), ID: r.ID, VMM: "qemu", User: r.User, Paused: r.Paused,
		Memory: plan.Memory{Size: 4096, Path: r.MemoryPath},
	}
	if r.User != nil {
		p.Files = append(p.Files, plan.File{Kind: plan.FilePath, Path: "/disks/" + p.Name, Granted: true})
	}
	if r.Spec.GetBoot().GetFirmware() == spec.FirmwareUEFI {
		p.Files = append(p.Files, plan.File{Kind: plan.FilePath, Path: filepath.Join(r.StateDir, "uefi-vars.fd"), Template: "/vars.fd", Write: true})
	}
	if v.folder {
		p.Files = append(p.Files, plan.File{Kind: plan.FileFolder, Path: shim.VMMFolderName})
	}
	if r.Image != nil {
		p.Restore = &plan.Restore{Directory: r.Image.Directory, ImageID: r.Image.Manifest.ID, Lazy: r.Image.Lazy}
	}
	return p, nil
}
func (v *fakeVMM) Manifest(r vmm.PlanRequest) (memory.Manifest, error) {
	return memory.Manifest{
		Layout: memory.LayoutRaw, VMM: memory.VMM{Name: "qemu", Version: "7.2.0"}, Accelerator: r.Hypervisor,
		MachineType: "pc-q35-7.2", MemorySize: 4096, Regions: []memory.Region{{Name: "ram0", Size: 4096}},
	}, v.w.step("manifest")
}

// PlanAttach gives the first later slot that is free.
func (v *fakeVMM) PlanAttach(r vmm.PlugRequest) (*plan.Attachment, error) {
	if err := v.w.step("plan attach"); err != nil {
		return nil, err
	}
	slot, free := spec.FreeSlot(r.Spec.GetDisks(), spec.FirstLaterSlot, spec.MaxSlot)
	if r.Network {
		slot, free = spec.FreeSlot(r.Spec.GetNetworks(), spec.FirstLaterSlot, spec.MaxSlot)
	}
	if !free {
		return nil, errors.New("no slot is free")
	}
	return &plan.Attachment{Device: fmt.Sprintf("%t-%d", r.Network, slot), Slot: uint32(slot), Instructions: json.RawMessage("{}")}, nil
}

func (v *fakeVMM) PlanDetach(r vmm.PlugRequest) (*plan.Detachment, error) {
	slot := spec.Slot(r.Spec.GetDisks(), min(r.Index, len(r.Spec.GetDisks())-1))
	if r.Network {
		slot = spec.Slot(r.Spec.GetNetworks(), r.Index)
	}
	return &plan.Detachment{Device: fmt.Sprintf("%t-%d", r.Network, slot), Instructions: json.RawMessage("{}")}, v.w.step("plan detach")
}

func (v *fakeVMM) Tell(vmm.Info) (json.RawMessage, error) { return json.RawMessage(`"fake"`), nil }
func (v *fakeVMM) Told(said json.RawMessage, _ *semaphore.Weighted) (vmm.VMM, error) {
	if string(said) != `"fake"` {
		return nil, fmt.Errorf("what QEMU said of itself: %.20s", said)
	}
	return v, nil
}
func (v *fakeVMM) CheckImage(context.Context, *memory.Manifest) error { return v.checkErr }
func (v *fakeVMM) Connect(ctx context.Context, dial vmm.Dialer) (vmm.Monitor, error) {
	if err := v.w.step("connect"); err != nil {
		return nil, err
	}
	conn, err := dial(ctx, "qmp.sock")
	if err != nil {
		return nil, err
	}
	return conn.(*fakeConn).proc.newMonitor()
}

// fakeMonitor is a connection to a fakeProc's VMM.
type fakeMonitor struct {
	proc   *fakeProc
	events chan vmm.Event
	once   sync.Once
}

func (m *fakeMonitor) Status(context.Context) (vmm.Status, error) {
	if err := m.proc.w.step("status"); err != nil {
		return vmm.Status{}, err
	}
	m.proc.mu.Lock()
	defer m.proc.mu.Unlock()
	return vmm.Status{Running: !m.proc.paused}, nil
}
func (m *fakeMonitor) setPaused(paused bool) error {
	m.proc.mu.Lock()
	defer m.proc.mu.Unlock()
	m.proc.paused = paused
	return nil
}
func (m *fakeMonitor) Pause(context.Context) error { return m.setPaused(true) }
func (m *fakeMonitor) Resume(context.Context) error {
	return errors.Join(m.setPaused(false), m.proc.w.step("resumed"))
}

// Reset that fails leaves the guest where it is; one that fails as "reset, off" ends it.
func (m *fakeMonitor) Reset(context.Context) error {
	if err := m.proc.w.step("reset, off"); err != nil {
		return errors.Join(err, m.setPaused(true))
	}
	return m.proc.w.step("reset")
}
func (m *fakeMonitor) SetGuestTime(context.Context, time.Time) error {
	return m.proc.w.step("guest time")
}
func (m *fakeMonitor) Size(context.Context) (vmm.Size, error) {
	m.proc.mu.Lock()
	defer m.proc.mu.Unlock()
	has := m.proc.balloon
	return vmm.Size{VCPUs: max(m.proc.vcpus, 1), Memory: &has}, m.proc.w.step("size")
}
func (m *fakeMonitor) SetVCPUs(_ context.Context, vcpus int) error {
	if err := m.proc.w.step("vcpus"); err != nil {
		return err
	}
	m.proc.mu.Lock()
	m.proc.vcpus = vcpus
	m.proc.mu.Unlock()
	return m.proc.w.step("after vcpus")
}
func (m *fakeMonitor) SetMemory(_ context.Context, bytes uint64) error {
	if err := m.proc.w.step("memory"); err != nil {
		return err
	}
	m.proc.mu.Lock()
	defer m.proc.mu.Unlock()
	m.proc.balloon = bytes
	return nil
}
func (m *fakeMonitor) Events() <-chan vmm.Event { return m.events }
func (m *fakeMonitor) Close() error {
	m.once.Do(func() { close(m.events) })
	return nil
}
