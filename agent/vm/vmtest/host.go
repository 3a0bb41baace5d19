package vmtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/vmlet/vmlet/agent/host"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/hypervisor"
)

// KVM works.
type KVM struct{}

func (KVM) Name() string        { return "kvm" }
func (KVM) Device() string      { return "/dev/fake-kvm" }
func (KVM) Accelerator() string { return "kvm" }
func (KVM) VirtType() string    { return "kvm" }
func (KVM) DependsOn() hypervisor.Dependencies {
	return hypervisor.Dependencies{}
}
func (KVM) Check(context.Context) hypervisor.Status {
	return hypervisor.Status{Level: hypervisor.Works, CPUQuirks: []string{"-quirk"}}
}

func (KVM) DeviceRequests() []hypervisor.DeviceRequest {
	return []hypervisor.DeviceRequest{{Resource: contract.ResourceKVM, Path: "/dev/kvm"}}
}

func (KVM) AdjustResources(f hypervisor.ResourceFacts) hypervisor.Resources {
	return hypervisor.CommonResources(f)
}

// Host keeps count of what is taken; taking twice is an error.
type Host struct{ w *World }

func (h *Host) TakeUser(vm string) (uint32, error) {
	if err := h.w.step("user"); err != nil {
		return 0, err
	}
	for uid := uint32(1000); ; uid++ {
		if h.w.Hold(fmt.Sprint("user ", uid)) == nil {
			return uid, nil
		}
	}
}
func (h *Host) ClaimUser(uid uint32, vm string) error {
	_ = h.w.Hold(fmt.Sprint("user ", uid)) // the agent that was lost had it
	return nil
}
func (h *Host) ReleaseUser(uid uint32, vm string) { h.w.Drop(fmt.Sprint("user ", uid)) }
func (h *Host) PlanCgroup(vm string, _ time.Duration) host.Cgroup {
	return host.Cgroup{Version: 2, Paths: map[string]string{"": "/vmlet/" + vm}}
}
func (h *Host) MakeCgroup(c host.Cgroup) error {
	if err := h.w.step("cgroup"); err != nil {
		return err
	}
	return h.w.Hold("cgroup " + c.Path())
}
func (h *Host) StartInCgroup(c host.Cgroup, start func(*syscall.SysProcAttr) (int, error)) (bool, error) {
	if err := h.w.step("join"); err != nil {
		return false, err
	}
	_, err := start(new(syscall.SysProcAttr))
	return !h.w.Has("no cgroup can be joined"), err
}

// EndProcesses can't end what a test has a user keep.
func (h *Host) EndProcesses(_ context.Context, c host.Cgroup, uid uint32) error {
	h.w.Mu.Lock()
	h.w.Searched = append(h.w.Searched, c.Path())
	h.w.Mu.Unlock()
	if h.w.Has(fmt.Sprint("process of user ", uid)) {
		return fmt.Errorf("a process of user %d does not end", uid)
	}
	return nil
}
func (h *Host) RemoveCgroup(c host.Cgroup) error {
	if p := h.w.Proc(filepath.Base(c.Path())); p != nil && p.Alive() {
		return errors.New("a process is in the cgroup")
	}
	h.w.Drop("cgroup " + c.Path())
	return nil
}
func (h *Host) GrantDevice(path string, uid uint32) (bool, error) {
	if err := h.w.step("device"); err != nil {
		return false, err
	}
	return true, h.w.Hold(fmt.Sprint("device ", path, " ", uid))
}
func (h *Host) RevokeDevice(path string, uid uint32) error {
	h.w.Drop(fmt.Sprint("device ", path, " ", uid))
	return nil
}
func (h *Host) RevokeFile(path, _ string, uid uint32) error {
	h.w.Drop(fmt.Sprint("file ", path, " ", uid))
	return nil
}
func (h *Host) RemoveTaps(string) error { return nil }
func (h *Host) NoteTap(device string) (host.TapNote, error) {
	return host.TapNote{Device: device, Owner: -1, Group: -1, Persistent: true}, h.w.step("note " + device)
}
func (h *Host) RestoreTap(n host.TapNote) error { return h.w.step("restore " + n.Device) }
func (h *Host) OpenTap(r host.TapRequest) (*os.File, string, error) {
	if err := h.w.step("tap"); err != nil {
		return nil, "", err
	}
	f, err := os.Open(os.DevNull)
	return f, "tap0", err
}
func (h *Host) MemoryPath(vm, id string, pageSize uint64) (string, error) {
	return "/ram/" + vm, h.w.step("memory path")
}
func (h *Host) MemoryRoom() uint64 { return 1 << 40 }

func (h *Host) RemoveMemory(path string) error {
	h.w.Drop("memory " + path)
	return nil
}
func (h *Host) Sweep(keep func(string) bool) (swept []string, err error) {
	for _, what := range h.w.Holding() {
		for _, kind := range []string{"cgroup /vmlet/", "memory /ram/"} {
			if vm, found := strings.CutPrefix(what, kind); found && !keep(vm) {
				h.w.Drop(what)
				swept = append(swept, vm)
			}
		}
	}
	return swept, nil
}
func (h *Host) Close() error { return nil }
