package vmtest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"golang.org/x/sync/semaphore"
)

// VMM plans anything.
type VMM struct {
	W        *World
	CheckErr error
	Refuses  spec.FieldErrors // of any specification
	Lazy     bool
	Folder   bool             // it writes snapshots to a folder of its own
	Made     []string         // the files that it is made of; nil: pods' are always asked
	Missing  error            // why it is not on this machine
	Version  string           // 7.2.0 if it is empty
	Keeps    spec.FieldErrors // what keeps any VM's VMM from being renewed
}

func (v *VMM) Name() string    { return "qemu" }
func (v *VMM) version() string { return cmp.Or(v.Version, "7.2.0") }

// RefuseRenewal says what the test has it say.
func (v *VMM) RefuseRenewal(*specv1.VirtualMachineSpec) spec.FieldErrors { return v.Keeps }
func (v *VMM) Info(context.Context) (vmm.Info, error) {
	return vmm.Info{Name: "qemu", Version: v.version(), Binary: "/bin/qemu", LazyRestore: v.Lazy}, cmp.Or(v.Missing, v.W.step("info"))
}
func (v *VMM) Files() []string            { return v.Made }
func (v *VMM) AllFiles(vmm.Info) []string { return v.Made }
func (v *VMM) Plan(r vmm.PlanRequest) (*plan.Plan, error) {
	if err := v.W.step("plan"); err != nil {
		return nil, err
	}
	if err := v.Refuses.Err(); err != nil {
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
	if v.Folder {
		p.Files = append(p.Files, plan.File{Kind: plan.FileFolder, Path: shim.VMMFolderName})
	}
	if r.Image != nil {
		p.Restore = &plan.Restore{Directory: r.Image.Directory, ImageID: r.Image.Manifest.ID, Lazy: r.Image.Lazy}
	}
	return p, nil
}
func (v *VMM) Traits(string) vmm.Traits { return vmm.Traits{} }
func (v *VMM) Manifest(r vmm.PlanRequest) (memory.Manifest, error) {
	return memory.Manifest{
		Layout: memory.LayoutRaw, VMM: memory.VMM{Name: "qemu", Version: v.version()}, Accelerator: r.Hypervisor,
		MachineType: "pc-q35-7.2", MemorySize: 4096, Regions: []memory.Region{{Name: "ram0", Size: 4096}},
	}, v.W.step("manifest")
}

// PlanAttach gives the first later slot that is free.
func (v *VMM) PlanAttach(r vmm.PlugRequest) (*plan.Attachment, error) {
	if err := v.W.step("plan attach"); err != nil {
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

func (v *VMM) PlanDetach(r vmm.PlugRequest) (*plan.Detachment, error) {
	slot := spec.Slot(r.Spec.GetDisks(), min(r.Index, len(r.Spec.GetDisks())-1))
	if r.Network {
		slot = spec.Slot(r.Spec.GetNetworks(), r.Index)
	}
	return &plan.Detachment{Device: fmt.Sprintf("%t-%d", r.Network, slot), Instructions: json.RawMessage("{}")}, v.W.step("plan detach")
}

func (v *VMM) Tell(vmm.Info) (json.RawMessage, error) { return json.RawMessage(`"fake"`), nil }
func (v *VMM) Told(said json.RawMessage, _ *semaphore.Weighted) (vmm.VMM, error) {
	if string(said) != `"fake"` {
		return nil, fmt.Errorf("QEMU's description of itself: %.20s", said)
	}
	return v, nil
}
func (v *VMM) CheckImage(context.Context, *memory.Manifest) error { return v.CheckErr }
func (v *VMM) Connect(ctx context.Context, dial vmm.Dialer) (vmm.Monitor, error) {
	if err := v.W.step("connect"); err != nil {
		return nil, err
	}
	conn, err := dial(ctx, "qmp.sock")
	if err != nil {
		return nil, err
	}
	return conn.(*Conn).proc.newMonitor()
}

// Monitor is a connection to a Proc's VMM.
type Monitor struct {
	Proc  *Proc
	Sends chan vmm.Event
	once  sync.Once
}

func (m *Monitor) Status(context.Context) (vmm.Status, error) {
	if err := m.Proc.W.step("status"); err != nil {
		return vmm.Status{}, err
	}
	m.Proc.Mu.Lock()
	defer m.Proc.Mu.Unlock()
	if m.Proc.Paused && m.Proc.Stopped != nil {
		return *m.Proc.Stopped, nil
	}
	return vmm.Status{Running: !m.Proc.Paused, Asked: m.Proc.Paused}, nil
}

// SetPaused pauses the guest or lets it run.
func (m *Monitor) SetPaused(paused bool) error {
	m.Proc.Mu.Lock()
	defer m.Proc.Mu.Unlock()
	m.Proc.Paused = paused
	return nil
}
func (m *Monitor) Pause(context.Context) error { return m.SetPaused(true) }
func (m *Monitor) Resume(context.Context) error {
	return errors.Join(m.SetPaused(false), m.Proc.W.step("resumed"))
}

// Reset that fails leaves the guest where it is; one that fails as "reset, off" ends it.
func (m *Monitor) Reset(context.Context) error {
	if err := m.Proc.W.step("reset, off"); err != nil {
		return errors.Join(err, m.SetPaused(true))
	}
	return m.Proc.W.step("reset")
}
func (m *Monitor) SetGuestTime(context.Context, time.Time) error {
	return m.Proc.W.step("guest time")
}

// AskGuest is what the test has the guest say.
func (m *Monitor) AskGuest(context.Context) (vmm.Guest, error) {
	m.Proc.Mu.Lock()
	defer m.Proc.Mu.Unlock()
	if m.Proc.Guest == nil {
		return vmm.Guest{}, vmm.ErrNoGuestAgent
	}
	return *m.Proc.Guest, nil
}

// RefuseSuspend refuses what QEMU does: a machine without ACPI.
func (v *VMM) RefuseSuspend(s *specv1.VirtualMachineSpec) error {
	if f := s.GetFeatures(); f != nil && f.Acpi != nil && !f.GetAcpi() {
		return errors.New("features.acpi: no S4")
	}
	return nil
}

// SuspendGuest has the guest end so, if it has an agent.
func (m *Monitor) SuspendGuest(context.Context) error {
	m.Proc.Mu.Lock()
	guest := m.Proc.Guest
	m.Proc.Mu.Unlock()
	if guest == nil {
		return vmm.ErrNoGuestAgent
	}
	if err := m.Proc.W.step("suspend"); err != nil {
		return err
	}
	m.Proc.End(&shim.Exit{Reason: shim.ReasonSuspended})
	return nil
}

func (m *Monitor) Size(context.Context) (vmm.Size, error) {
	m.Proc.Mu.Lock()
	defer m.Proc.Mu.Unlock()
	has := m.Proc.Balloon
	return vmm.Size{VCPUs: max(m.Proc.VCPUs, 1), Memory: &has}, m.Proc.W.step("size")
}
func (m *Monitor) SetVCPUs(_ context.Context, vcpus int) error {
	if err := m.Proc.W.step("vcpus"); err != nil {
		return err
	}
	m.Proc.Mu.Lock()
	m.Proc.VCPUs = vcpus
	m.Proc.Mu.Unlock()
	return m.Proc.W.step("after vcpus")
}
func (m *Monitor) SetMemory(_ context.Context, bytes uint64) error {
	if err := m.Proc.W.step("memory"); err != nil {
		return err
	}
	m.Proc.Mu.Lock()
	defer m.Proc.Mu.Unlock()
	m.Proc.Balloon = bytes
	return nil
}
func (m *Monitor) Events() <-chan vmm.Event { return m.Sends }
func (m *Monitor) Close() error {
	m.once.Do(func() { close(m.Sends) })
	return nil
}
