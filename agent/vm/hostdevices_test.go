package vm

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/sysfs"
	"google.golang.org/grpc/codes"
)

const testMediated = "0b2a1c1e-5f0d-4c33-9a35-1f3f8f9d7f10"

// deviceHost has a device in a group of its own, one that its driver has, one whose
// neighbour the host uses, one without a group's node, and a mediated one.
func deviceHost() *sysfs.Host {
	pci := func(address, driver string, group int) sysfs.PCIDevice {
		return sysfs.PCIDevice{Address: address, Driver: driver, IOMMUGroup: group}
	}
	return &sysfs.Host{
		Nodes: []sysfs.Node{{ID: 0}, {ID: 2}},
		PCIDevices: []sysfs.PCIDevice{
			pci("0000:01:00.0", "vfio-pci", 12), pci("0000:01:00.1", "vfio-pci", 12), pci("0000:02:00.0", "nvme", 13),
			pci("0000:03:00.0", "vfio-pci", 14), pci("0000:04:00.0", "vfio-pci", 15), pci("0000:05:00.0", "vfio-pci", -1),
		},
		IOMMUGroups: []sysfs.IOMMUGroup{
			{ID: 12, Viable: true}, {ID: 13}, {ID: 14, Devices: []string{"0000:03:00.0", "0000:03:00.1"}}, {ID: 15, Viable: true}, {ID: 20, Viable: true},
		},
		MediatedDevices: []sysfs.MediatedDevice{{UUID: testMediated, IOMMUGroup: 20}},
		VFIO:            sysfs.VFIO{Groups: []string{"12", "13", "14", "20"}},
	}
}

func withDevices(name string, devices ...string) *specv1.VirtualMachineSpec {
	s := vmtest.Spec(name)
	for _, d := range devices {
		out := &specv1.HostDevice{Device: &specv1.HostDevice_PciAddress{PciAddress: d}}
		if len(d) == len(testMediated) {
			out.Device = &specv1.HostDevice_Mdev{Mdev: d}
		}
		s.HostDevices = append(s.HostDevices, out)
	}
	return s
}

func (w *world) startWithDevices() *testAgent {
	a := w.start()
	a.Platform.node.ReadHost = deviceHost
	return a
}

// heldNodes are the nodes of VFIO that users have access to, without the users.
func (w *world) heldNodes(t *testing.T, a *testAgent) []string {
	t.Helper()
	var out []string
	for _, what := range w.Holding() {
		if path, ok := strings.CutPrefix(what, "device "+a.Platform.node.Roots.DevPath()+"/"); ok {
			path, _, _ = strings.Cut(path, " ")
			out = append(out, path)
		}
	}
	slices.Sort(out)
	return out
}

func TestHostDevices(t *testing.T) {
	w := newWorld(t)
	a := w.startWithDevices()
	for _, s := range []*specv1.VirtualMachineSpec{withDevices("web", "0000:01:00.0", testMediated), withDevices("other", "0000:01:00.1")} {
		if _, err := a.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	a.mustStart(t, "web")
	want := []string{"vfio/12", "vfio/20", "vfio/vfio"}
	if got := w.heldNodes(t, a); !slices.Equal(got, want) {
		t.Errorf("the VMM's user may open %q, want %q", got, want)
	}
	// RAM, what goes beside it, and a GiB (hypervisor.CommonResources).
	if got, least := w.Proc("web").Launched.LockedMemory, uint64(512<<20+1<<30); got <= least || got > least+1<<30 {
		t.Errorf("the VMM may lock %d bytes, want somewhat more than %d", got, least)
	}
	_, err := a.Manager.Start(t.Context(), "other", StartOptions{}, nil)
	wantFields(t, err, "hostDevices[0].pciAddress", "group 12 is that of a device of vm web")

	a.end() // the next agent knows of it by the lease
	a = w.startWithDevices()
	_, err = a.Manager.Start(t.Context(), "other", StartOptions{}, nil)
	wantFields(t, err, "hostDevices[0].pciAddress", "vm web")
	_, _, err = a.Save(t.Context(), "web", place.SaveOptions{Directory: filepath.Join(t.TempDir(), "image")}, func(shim.Progress) {})
	vmtest.WantCode(t, "save", err, codes.FailedPrecondition)
	if err == nil || !strings.Contains(err.Error(), "hostDevices: ") {
		t.Errorf("save: %v", err)
	}
	if _, err := a.Kill(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	a.mustStart(t, "other")
	if got, want := w.heldNodes(t, a), []string{"vfio/12", "vfio/vfio"}; !slices.Equal(got, want) {
		t.Errorf("the VMM's user may open %q, want %q", got, want)
	}
	if _, err := a.Kill(t.Context(), "other"); err != nil {
		t.Fatal(err)
	}
	w.WantNothingHeld(t)
}

// TestHostDevicesFail: access is taken back when a start fails.
func TestHostDevicesFail(t *testing.T) {
	for _, step := range []string{"device", "launch"} {
		w := newWorld(t)
		a := w.startWithDevices()
		if _, err := a.Create(t.Context(), withDevices("web", "0000:01:00.0", testMediated)); err != nil {
			t.Fatal(err)
		}
		w.FailStep(step, errors.New("no luck"))
		if _, err := a.Manager.Start(t.Context(), "web", StartOptions{}, nil); err == nil {
			t.Errorf("%s: no error", step)
		}
		w.WantNothingHeld(t)
	}
}

func TestHostFactsRefused(t *testing.T) {
	for _, c := range []struct {
		device, field, text string
	}{
		{"0000:09:00.0", "hostDevices[0].pciAddress", "no such PCI device"},
		{"0000:02:00.0", "hostDevices[0].pciAddress", "bound to nvme, not to vfio-pci: bind it"},
		{"0000:03:00.0", "hostDevices[0].pciAddress", "0000:03:00.1: bind all of them"},
		{"0000:04:00.0", "hostDevices[0].pciAddress", "no /dev/vfio/15: load vfio-pci"},
		{"0000:05:00.0", "hostDevices[0].pciAddress", "in no IOMMU group: enable VT-d"},
		{"1b2a1c1e-5f0d-4c33-9a35-1f3f8f9d7f10", "hostDevices[0].mdev", "no such mediated device: make it"},
	} {
		w := newWorld(t)
		a := w.startWithDevices()
		if _, err := a.Create(t.Context(), withDevices("web", c.device)); err != nil {
			t.Fatal(err)
		}
		_, err := a.Manager.Start(t.Context(), "web", StartOptions{}, nil)
		wantFields(t, err, c.field, c.text)
		w.WantNothingHeld(t)
	}
	w := newWorld(t)
	a := w.startWithDevices()
	s := vmtest.Spec("web")
	s.Memory = &specv1.Memory{Size: "1Gi"}
	s.Numa = &specv1.NUMA{Nodes: []*specv1.NUMANode{{Cpus: "0", Memory: "1Gi", HostNodes: "0-2"}}}
	if _, err := a.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	_, err := a.Manager.Start(t.Context(), "web", StartOptions{}, nil)
	wantFields(t, err, "numa.nodes[0].hostNodes", "no NUMA node 1: it has 0,2")
}

func wantFields(t *testing.T, err error, field, text string) {
	t.Helper()
	var faults spec.FieldErrors
	if !errors.As(err, &faults) || len(faults) != 1 || faults[0].Field != field || !strings.Contains(faults[0].Message, text) {
		t.Errorf("error %v, want one of %s with %q", err, field, text)
	}
	vmtest.WantCode(t, "start", err, codes.InvalidArgument)
}
