package vm

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/agent/events"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
	"github.com/vmlet/vmlet/memory"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/spec"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

func diskRequest(name, path string) *nodev1.AttachRequest {
	return &nodev1.AttachRequest{Name: "web", Device: &nodev1.AttachRequest_Disk{Disk: &specv1.Disk{Name: name, Path: path}}}
}

func tapRequest(name string) *nodev1.AttachRequest {
	return &nodev1.AttachRequest{Name: "web", Device: &nodev1.AttachRequest_Network{Network: &specv1.NetworkInterface{
		Name: name, Backend: &specv1.NetworkInterface_Tap{Tap: &specv1.TapNetwork{Bridge: "br0"}},
	}}}
}

// started is a VM that runs, with two unnamed disks.
func started(t *testing.T, w *world) *testAgent {
	t.Helper()
	a := w.start()
	s := vmtest.Spec("web")
	s.Disks = []*specv1.Disk{{Path: "/a"}, {Path: "/b"}}
	if _, err := a.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	a.mustStart(t, "web")
	return a
}

// devices are "name slot" of the specification as it runs, and the names that the user's
// has.
func devices(vm *nodev1.VirtualMachine) (complete, own []string) {
	c, o := vm.GetStatus().GetEffectiveSpec(), vm.GetSpec()
	for i, d := range c.GetDisks() {
		complete = append(complete, d.GetName()+"@"+slotText(spec.Slot(c.GetDisks(), i)))
	}
	for i, n := range c.GetNetworks() {
		complete = append(complete, n.GetName()+"@"+slotText(spec.Slot(c.GetNetworks(), i)))
	}
	for _, d := range o.GetDisks() {
		own = append(own, d.GetName())
	}
	for _, n := range o.GetNetworks() {
		own = append(own, n.GetName())
	}
	return complete, own
}

func slotText(slot int) string {
	if slot >= spec.FirstLaterSlot {
		return "later" + string(rune('0'+slot-spec.FirstLaterSlot))
	}
	return string(rune('0' + slot))
}

// wantDevices compares the devices in memory and on disk.
func (a *testAgent) wantDevices(t *testing.T, complete, own string) {
	t.Helper()
	m, err := a.Get(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}
	kept, err := a.store.Load("web")
	if err != nil {
		t.Fatal(err)
	}
	for where, vm := range map[string]*nodev1.VirtualMachine{"memory": m.Snapshot(), "vm.json": kept} {
		gotComplete, gotOwn := devices(vm)
		if c, o := strings.Join(gotComplete, " "), strings.Join(gotOwn, " "); c != complete || o != own {
			t.Errorf("in %s: %q and %q, want %q and %q", where, c, o, complete, own)
		}
	}
}

func TestAttachAndDetach(t *testing.T) {
	w := newWorld(t)
	a := started(t, w)
	a.wantDevices(t, "disk0@0 disk1@1 net0@0", "  ")

	vm, name, err := a.Attach(t.Context(), diskRequest("", "/c"))
	if err != nil || name != "disk2" || len(vm.GetSpec().GetDisks()) != 3 {
		t.Fatalf("%q, %v", name, err)
	}
	a.wantDevices(t, "disk0@0 disk1@1 disk2@later0 net0@0", "disk0 disk1 disk2 net0")
	if _, name, err = a.Attach(t.Context(), tapRequest("lan")); err != nil || name != "lan" {
		t.Fatalf("%q, %v", name, err)
	}
	a.wantDevices(t, "disk0@0 disk1@1 disk2@later0 net0@0 lan@later0", "disk0 disk1 disk2 net0 lan")
	if p := w.Proc("web"); !reflect.DeepEqual(p.Attached, []string{"false-64", "true-64"}) || p.Taps != 1 {
		t.Errorf("the VMM has %q, and %d taps", p.Attached, p.Taps)
	}

	// In the middle: what is left stays where it is, and keeps its name.
	if _, err := a.Detach(t.Context(), "web", "disk1"); err != nil {
		t.Fatal(err)
	}
	a.wantDevices(t, "disk0@0 disk2@later0 net0@0 lan@later0", "disk0 disk2 net0 lan")

	// What it was saved with is what it is restored with.
	image := filepath.Join(t.TempDir(), "image")
	if _, _, err := a.Save(t.Context(), "web", place.SaveOptions{Directory: image}, nil); err != nil {
		t.Fatal(err)
	}
	opened, err := memory.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	s, err := spec.Parse(opened.Manifest().Specification, "image")
	if err != nil {
		t.Fatal(err)
	}
	if complete, _ := devices(&nodev1.VirtualMachine{Status: &nodev1.VirtualMachineStatus{EffectiveSpec: s}}); strings.Join(complete, " ") != "disk0@0 disk2@later0 net0@0 lan@later0" {
		t.Errorf("the image has %q", complete)
	}
	vmtest.WantCode(t, "attaching to a saved VM", second(a.Attach(t.Context(), diskRequest("", "/d"))), codes.FailedPrecondition)
	a.mustStart(t, "web")
	a.wantDevices(t, "disk0@0 disk2@later0 net0@0 lan@later0", "disk0 disk2 net0 lan")
	// Booted afresh, all have a place of a boot.
	if _, _, err := a.Stop(t.Context(), "web", nil); err != nil {
		t.Fatal(err)
	}
	a.mustStart(t, "web")
	a.wantDevices(t, "disk0@0 disk2@1 net0@0 lan@1", "disk0 disk2 net0 lan")
}

func second[A, B any](_ A, _ B, err error) error { return err }

func TestAttachTwice(t *testing.T) {
	w := newWorld(t)
	a := started(t, w)
	for range 2 {
		if _, name, err := a.Attach(t.Context(), diskRequest("data", "/c")); err != nil || name != "data" {
			t.Fatal(name, err)
		}
		if _, name, err := a.Attach(t.Context(), tapRequest("lan")); err != nil || name != "lan" {
			t.Fatal(name, err)
		}
	}
	if p := w.Proc("web"); len(p.Attached) != 2 {
		t.Errorf("the VMM has %q", p.Attached)
	}
	for what, r := range map[string]*nodev1.AttachRequest{
		"another disk of that name": diskRequest("data", "/d"),
		"a network of that name":    tapRequest("data"),
		"a disk that is there":      diskRequest("", "/a"),
		"another over its file":     diskRequest("more", "/a"),
	} {
		vmtest.WantCode(t, what, second(a.Attach(t.Context(), r)), codes.AlreadyExists)
	}
	vmtest.WantCode(t, "nothing", second(a.Attach(t.Context(), &nodev1.AttachRequest{Name: "web"})), codes.InvalidArgument)
	err := second(a.Attach(t.Context(), diskRequest("data2", "c")))
	vmtest.WantCode(t, "a relative path", err, codes.InvalidArgument)
	if !strings.Contains(err.Error(), "disks[3].path") {
		t.Error(err)
	}
	vmtest.WantCode(t, "detaching what isn't there", first(a.Detach(t.Context(), "web", "none")), codes.NotFound)
	vmtest.WantCode(t, "of no VM", second(a.Attach(t.Context(), &nodev1.AttachRequest{Name: "x", Device: diskRequest("", "/x").Device})), codes.NotFound)
}

func first[A any](_ A, err error) error { return err }

// TestAttachFails leaves everything as it was.
func TestAttachFails(t *testing.T) {
	for _, step := range []string{"plan attach", "tap", "attach"} {
		w := newWorld(t)
		a := started(t, w)
		w.FailStep(step, &shim.Error{Code: shim.CodeInvalid, Field: "disks[2].path", Message: "no"})
		vmtest.WantCode(t, step, second(a.Attach(t.Context(), tapRequest("lan"))), map[bool]codes.Code{true: codes.FailedPrecondition, false: codes.InvalidArgument}[step == "tap"])
		a.wantDevices(t, "disk0@0 disk1@1 net0@0", "  ")
	}
	w := newWorld(t)
	a := started(t, w)
	w.FailStep("detach", &shim.Error{Code: shim.CodeTimeout, Message: "the guest keeps it"})
	vmtest.WantCode(t, "a guest that keeps it", first(a.Detach(t.Context(), "web", "disk0")), codes.DeadlineExceeded)
	a.wantDevices(t, "disk0@0 disk1@1 net0@0", "  ")
	// It lets go later.
	p := w.Proc("web")
	p.Conns[0].Sends <- shim.Event{Note: []byte(`{"detached":"disk0"}`)}
	sub := a.hub.Subscribe("web", history, history)
	defer sub.Close()
	for done := false; !done; {
		<-sub.Ready()
		done = slices.ContainsFunc(sub.Take(), func(i events.Item) bool { return i.Event.GetType() == "detached" })
	}
	a.wantDevices(t, "disk1@1 net0@0", "disk1 net0")
}

// TestAgentLostWhilePlugging: the next agent has what the shim has.
func TestAgentLostWhilePlugging(t *testing.T) {
	w := newWorld(t)
	a := started(t, w)
	w.FailStep("after attach", errors.New("lost"))
	w.FailStep("after detach", errors.New("lost"))
	if _, _, err := a.Attach(t.Context(), diskRequest("data", "/c")); err == nil {
		t.Fatal("no error")
	}
	if _, err := a.Detach(t.Context(), "web", "disk0"); err == nil {
		t.Fatal("no error")
	}
	a.wantDevices(t, "disk0@0 disk1@1 net0@0", "  ")
	a.end()
	p := w.Proc("web")
	p.Notes = append(p.Notes, []byte(`{}`), []byte(`{"attached":{"disk":{"name":"x"}},"complete":{"network":{"name":"x"}}}`), []byte(`[`))
	w.FailStep("after attach", nil)
	for range 2 {
		b := w.start()
		b.wantState(t, "web", lifecycle.Running)
		b.wantDevices(t, "disk1@1 data@later0 net0@0", "disk1 data net0")
		b.end()
	}
}

// TestPlugStopped changes what the VM is started with.
func TestPlugStopped(t *testing.T) {
	w := newWorld(t)
	a := w.start()
	s := vmtest.Spec("web")
	s.Disks = []*specv1.Disk{{Path: "/a"}, {Path: "/b"}}
	if _, err := a.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if _, name, err := a.Attach(t.Context(), diskRequest("", "/c")); err != nil || name != "disk2" {
		t.Fatal(name, err)
	}
	if _, err := a.Detach(t.Context(), "web", "disk0"); err != nil {
		t.Fatal(err)
	}
	a.wantDevices(t, "", "disk1 disk2 net0")
	vmtest.WantCode(t, "a bad one", second(a.Attach(t.Context(), diskRequest("", "c"))), codes.InvalidArgument)
	a.mustStart(t, "web")
	a.wantDevices(t, "disk1@0 disk2@1 net0@0", "disk1 disk2 net0")
}

func TestResize(t *testing.T) {
	w := newWorld(t)
	a := w.start()
	s := vmtest.Spec("web")
	s.Cpu = &specv1.CPU{Cores: 1, MaxVcpus: 4}
	s.Memory = &specv1.Memory{Size: "1Gi"}
	if _, err := a.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	a.mustStart(t, "web")
	size := func(vcpus uint32, memory string) error {
		_, _, err := a.Resize(t.Context(), &nodev1.ResizeVMRequest{Name: "web", Vcpus: vcpus, Memory: memory})
		return err
	}
	want := func(b *testAgent, vcpus uint64, target string) {
		t.Helper()
		kept, err := b.store.Load("web")
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []*specv1.VirtualMachineSpec{kept.GetSpec(), kept.GetStatus().GetEffectiveSpec()} {
			if spec.VCPUs(s.GetCpu()) != vcpus || spec.VCPULimit(s.GetCpu()) != 4 || s.GetMemory().GetTarget() != target || s.GetMemory().GetSize() != "1Gi" {
				t.Errorf("%v %v, want %d vCPUs and the target %q", s.GetCpu(), s.GetMemory(), vcpus, target)
			}
		}
	}
	if err := size(3, "512Mi"); err != nil {
		t.Fatal(err)
	}
	want(a, 3, "512Mi")
	if p := w.Proc("web"); p.VCPUs != 3 || p.Balloon != 512<<20 {
		t.Errorf("the VMM has %d vCPUs and %d bytes", p.VCPUs, p.Balloon)
	}
	if err := size(0, "1Gi"); err != nil {
		t.Fatal(err)
	}
	want(a, 3, "")
	for what, err := range map[string]error{
		"cpu.maxVcpus": size(5, ""), "memory.size": size(0, "2Gi"), "memory": size(0, "lots"), "memory: ": size(0, "1000"), "vcpus": size(0, ""),
	} {
		vmtest.WantCode(t, what, err, codes.InvalidArgument)
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	w.FailStep("memory", errors.New("no"))
	vmtest.WantCode(t, "a balloon that fails", size(0, "256Mi"), codes.Unavailable)
	want(a, 3, "")
	w.FailStep("memory", nil)

	// Lost after the VMM has done it: the next agent asks.
	w.FailStep("after vcpus", errors.New("lost"))
	w.FailStep("size", errors.New("lost"))
	if err := size(4, ""); err == nil {
		t.Error("no error")
	}
	want(a, 3, "")
	a.end()
	w.FailStep("size", nil)
	b := w.start()
	want(b, 4, "")

	if _, _, err := b.Stop(t.Context(), "web", nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Resize(t.Context(), &nodev1.ResizeVMRequest{Name: "web", Vcpus: 6, Memory: "3Gi"}); err != nil {
		t.Fatal(err)
	}
	m, err := b.Get(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}
	if s := m.Snapshot().GetSpec(); s.GetCpu().GetSockets() != 6 || s.GetCpu().GetMaxVcpus() != 6 || s.GetMemory().GetSize() != "3Gi" {
		t.Errorf("stopped it is %v %v", s.GetCpu(), s.GetMemory())
	}
	// One that is started with a target has its balloon told.
	s = proto.CloneOf(s)
	s.Name, s.Memory.Target = "small", "256Mi"
	if _, err := b.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	b.mustStart(t, "small")
	if p := w.Proc("small"); p.Balloon != 256<<20 {
		t.Errorf("the balloon was told %d", p.Balloon)
	}
}

// TestDiskLetGoLater: a disk that the guest lets go after all is free for another VM.
func TestDiskLetGoLater(t *testing.T) {
	w := newWorld(t)
	a := w.start()
	disk := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(disk, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"web", "next"} {
		s := vmtest.Spec(name)
		s.Disks = []*specv1.Disk{{Name: "root", Path: disk}}
		if _, err := a.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	a.mustStart(t, "web")
	w.FailStep("detach", &shim.Error{Code: shim.CodeTimeout, Message: "the guest keeps it"})
	vmtest.WantCode(t, "a guest that keeps it", first(a.Detach(t.Context(), "web", "root")), codes.DeadlineExceeded)
	_, err := a.Manager.Start(t.Context(), "next", StartOptions{}, nil)
	vmtest.WantCode(t, "another VM meanwhile", err, codes.FailedPrecondition)
	sub := a.hub.Subscribe("web", history, history)
	defer sub.Close()
	w.Proc("web").Conns[0].Sends <- shim.Event{Note: []byte(`{"detached":"root"}`)}
	for done := false; !done; {
		<-sub.Ready()
		done = slices.ContainsFunc(sub.Take(), func(i events.Item) bool { return i.Event.GetType() == "detached" })
	}
	a.mustStart(t, "next")
}
