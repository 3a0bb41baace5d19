package vmm_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
)

// TestRegistry: VMMs are found by their names, in their order.
func TestRegistry(t *testing.T) {
	r, err := vmm.NewRegistry(named("b"), named("a"))
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Names(); !slices.Equal(got, []string{"b", "a"}) {
		t.Errorf("names %q, want b and a", got)
	}
	clear(r.All())
	if p, known := r.Get("a"); !known || p.Name() != "a" {
		t.Errorf("a is %v, %t", p, known)
	}
	if p, known := r.Get("c"); known {
		t.Errorf("c is %v", p)
	}
}

// TestSaveable: what no VMM can save is refused by its field.
func TestSaveable(t *testing.T) {
	shared := &specv1.Disk{Name: "data", Shareable: true}
	for name, c := range map[string]struct {
		s    *specv1.VirtualMachineSpec
		want string
	}{
		"a disk of its own":     {&specv1.VirtualMachineSpec{Disks: []*specv1.Disk{{Name: "root"}}}, ""},
		"a shareable disk":      {&specv1.VirtualMachineSpec{Disks: []*specv1.Disk{{Name: "root"}, shared}}, "disks[1].shareable: other VMs may write to the shareable disk data"},
		"a masqueraded pod":     {onPod(spec.BindingMasquerade, ""), ""},
		"a pod's address":       {onPod(spec.BindingBridge, ""), "networks[0].pod.binding: bridge gives the guest its pod's address"},
		"its default interface": {onPod(spec.BindingBridge, "eth0"), "networks[0].pod.binding: "},
		"a second interface":    {onPod(spec.BindingBridge, "net1"), ""},
		"a device of the host":  {&specv1.VirtualMachineSpec{HostDevices: []*specv1.HostDevice{{}}}, "hostDevices: "},
	} {
		err := vmm.Saveable(nil, c.s).Err()
		if (err != nil) != (c.want != "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if err := vmm.Suspendable(suspender{}, &specv1.VirtualMachineSpec{Disks: []*specv1.Disk{shared}}); err == nil || !strings.HasPrefix(err.Error(), "disks[0].shareable: ") {
		t.Errorf("a guest with a shareable disk suspends itself to its own: %v", err)
	}
	if err := vmm.Suspendable(suspender{}, new(specv1.VirtualMachineSpec)); err != nil {
		t.Errorf("a guest without shareable disks: %v", err)
	}
}

// onPod is a VM on an interface of its pod.
func onPod(binding, iface string) *specv1.VirtualMachineSpec {
	pod := &specv1.NetworkInterface_Pod{Pod: &specv1.PodNetwork{Binding: binding, Interface: iface}}
	return &specv1.VirtualMachineSpec{Networks: []*specv1.NetworkInterface{{Backend: pod}}}
}

// suspender is a VMM that lets every guest suspend itself.
type suspender struct{ vmm.VMM }

func (suspender) RefuseSuspend(*specv1.VirtualMachineSpec) error { return nil }

func TestRegistryRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		planners []vmm.Planner
		want     string
	}{
		"twice":      {[]vmm.Planner{named("a"), named("a")}, "twice"},
		"auto":       {[]vmm.Planner{named("auto")}, "can't be a VMM's name"},
		"no name":    {[]vmm.Planner{named("")}, "can't be a VMM's name"},
		"two words":  {[]vmm.Planner{named("a b")}, "can't be a VMM's name"},
		"upper case": {[]vmm.Planner{named("QEMU")}, "can't be a VMM's name"},
	} {
		if _, err := vmm.NewRegistry(c.planners...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestCostsOfAnUnmeasuredVMM: it is reckoned with, as a guess.
func TestCostsOfAnUnmeasuredVMM(t *testing.T) {
	if c := vmm.MemoryCostsOf(named("a")); c.Measured || c.Base == 0 || c.Note == "" {
		t.Errorf("%+v, want a guess that says so", c)
	}
}

// named is a VMM that has a name and nothing else.
type named string

func (n named) Name() string { return string(n) }

func (named) Plan(vmm.PlanRequest) (*plan.Plan, error) { return nil, errors.ErrUnsupported }

func (named) Traits(string) vmm.Traits { return vmm.Traits{} }
func (named) Manifest(vmm.PlanRequest) (memory.Manifest, error) {
	return memory.Manifest{}, errors.ErrUnsupported
}
