package vm

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// TestCreateValidatesForItsVMM: what a VMM that is named can't do is said at once,
// beside all else, whether it is there or not; for "auto" there may be another.
func TestCreateValidatesForItsVMM(t *testing.T) {
	w := newWorld(t)
	other := vmtest.NewOther(w.World)
	other.Missing = fs.ErrNotExist
	w.Others = []vmm.Program{other}
	a := w.start()
	for _, c := range []struct{ yaml, want string }{
		{"vmm: cloud-hypervisor\nnetworks: [{}, {tap: {}}]\ndevices: {watchdog: {model: itco}}", "networks[0].user devices.watchdog.model"},
		{"vmm: cloud-hypervisor\nhypervisor: emulation\ncpu: {model: host}\nnetworks: [{user: {}}]", "cpu.model networks[0].user"},
		{"vmm: cloud-hypervisor\ndevices: {watchdog: {}}", ""},
		{"vmm: qemu\nnetworks: [{}]", ""},
		{"vmm: auto\nnetworks: [{}]\ndevices: {watchdog: {model: itco}}", ""},
	} {
		s, err := spec.Parse([]byte("name: a\n"+c.yaml), "test")
		if err != nil {
			t.Fatal(err)
		}
		before := proto.CloneOf(s)
		_, err = a.Create(t.Context(), s)
		var faults spec.FieldErrors
		if errors.As(err, &faults) != (c.want != "") {
			t.Errorf("%q: %v", c.yaml, err)
		}
		var fields []string
		for _, f := range faults {
			fields = append(fields, f.Field)
		}
		if got := strings.Join(fields, " "); got != c.want || !proto.Equal(s, before) {
			t.Errorf("%q: faults of %q, want %q; it became %v", c.yaml, got, c.want, s)
		}
		if err == nil {
			if err := a.Delete(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestAdvice: another VMM is named where it can be used.
func TestAdvice(t *testing.T) {
	for _, there := range []bool{true, false} {
		w := newWorld(t)
		w.Others = []vmm.Program{vmtest.NewOther(w.World)}
		want := "networks[0].user: want a tap, or use vmm: qemu"
		if !there {
			w.FailStep("info", errors.New("no such file"))
			want = "networks[0].user: want a tap"
		}
		a := w.start()
		s := vmtest.Spec("web")
		s.Networks = []*specv1.NetworkInterface{{}}
		s.Vmm = vmtest.OtherName
		if _, err := a.Create(t.Context(), s); err == nil || err.Error() != want {
			t.Errorf("created: %v, want %q", err, want)
		}
		s.Vmm = ""
		if _, err := a.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if there {
			w.VMM.Refuses = spec.FieldErrors{{Field: "devices.x", Message: "there is none"}}
		}
		_, err := a.Start(t.Context(), "web", StartOptions{}, nil)
		if got := fault.ToStatus(err).Error(); strings.Contains(got, "vmm: qemu") != there || !strings.Contains(got, want) {
			t.Errorf("started: %s, want %q", got, want)
		}
	}
}

// TestAutoVMM: the VMM follows from the specification and from what is there, and the
// record says why.
func TestAutoVMM(t *testing.T) {
	fault := spec.FieldErrors{{Field: "devices.x", Message: "there is none"}}
	user := []*specv1.NetworkInterface{{Backend: &specv1.NetworkInterface_User{User: &specv1.UserNetwork{}}}}
	for _, c := range []struct {
		name                  string
		change                func(w *world, other *vmtest.OtherVMM)
		spec                  func(s *specv1.VirtualMachineSpec)
		hypervisor, vmm, says string
	}{
		{name: "the first", hypervisor: "kvm", vmm: "qemu", says: "qemu: the node's first choice"},
		{name: "by name", spec: func(s *specv1.VirtualMachineSpec) { s.Vmm = vmtest.OtherName }, hypervisor: "kvm", vmm: vmtest.OtherName, says: "cloud-hypervisor was asked for"},
		{name: "qemu not there", change: func(w *world, _ *vmtest.OtherVMM) { w.FailStep("info", errors.New("no such file")) },
			hypervisor: "kvm", vmm: vmtest.OtherName, says: "cloud-hypervisor: qemu can't be used (no such file)"},
		{name: "qemu refuses", change: func(w *world, _ *vmtest.OtherVMM) { w.VMM.Refuses = fault },
			hypervisor: "kvm", vmm: vmtest.OtherName, says: "cloud-hypervisor: qemu can't: devices.x: there is none"},
		{name: "only qemu emulates", spec: func(s *specv1.VirtualMachineSpec) { s.Hypervisor = "emulation" },
			hypervisor: "emulation", vmm: "qemu", says: "qemu: the node's first choice"},
		{name: "the other is not asked in vain", change: func(_ *world, other *vmtest.OtherVMM) { other.Missing = errors.New("broken") },
			spec: func(s *specv1.VirtualMachineSpec) { s.Networks = user }, hypervisor: "kvm", vmm: "qemu", says: "qemu: the node's first choice"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			other := vmtest.NewOther(w.World)
			w.Others = []vmm.Program{other}
			if c.change != nil {
				c.change(w, other)
			}
			a := w.start()
			s := vmtest.Spec("web")
			if c.spec != nil {
				c.spec(s)
			}
			if _, err := a.Create(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			a.mustStart(t, "web")
			m, _ := a.Get(t.Context(), "web")
			st := m.Snapshot().GetStatus()
			if st.GetHypervisor() != c.hypervisor || st.GetVmm().GetName() != c.vmm || st.GetVmmReason() != c.says || st.GetHypervisorReason() == "" {
				t.Errorf("%s with %s: %q, %q; want %s with %s: %q", st.GetHypervisor(), st.GetVmm().GetName(), st.GetHypervisorReason(), st.GetVmmReason(), c.hypervisor, c.vmm, c.says)
			}
			if got := w.Proc("web").Launched.VMM; got != c.vmm || st.GetEffectiveSpec().GetVmm() != c.vmm {
				t.Errorf("a plan for %s, a specification for %s", got, st.GetEffectiveSpec().GetVmm())
			}
		})
	}
}

// TestNoVMM: where none can, it is said of each why, with the fields, and nothing is
// taken.
func TestNoVMM(t *testing.T) {
	w := newWorld(t)
	w.Others = []vmm.Program{vmtest.NewOther(w.World)}
	w.VMM.Refuses = spec.FieldErrors{{Field: "devices.x", Message: "there is none"}}
	a := w.start()
	s := vmtest.Spec("web")
	s.Networks = append(s.Networks, &specv1.NetworkInterface{})
	if _, err := a.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	_, err := a.Start(t.Context(), "web", StartOptions{}, nil)
	vmtest.WantCode(t, "starting", err, codes.InvalidArgument)
	for _, want := range []string{"qemu under kvm: devices.x: there is none", "cloud-hypervisor under kvm: networks[1].user: want a tap"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\ndoesn't have %q", err, want)
		}
	}
	if held := w.Holding(); held != nil {
		t.Errorf("still taken: %q", held)
	}
}

// TestRestoreTakesTheImagesVMM, whichever is preferred.
func TestRestoreTakesTheImagesVMM(t *testing.T) {
	w := newWorld(t)
	w.Others = []vmm.Program{vmtest.NewOther(w.World)}
	a := w.start()
	s := vmtest.Spec("web")
	s.Vmm = vmtest.OtherName
	if _, err := a.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	a.mustStart(t, "web")
	dir := filepath.Join(t.TempDir(), "image")
	if _, _, err := a.Save(t.Context(), "web", place.SaveOptions{Directory: dir}, func(shim.Progress) {}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Restore(t.Context(), RestoreOptions{Directory: dir, Name: "again", NewIdentity: true}, nil); err != nil {
		t.Fatal(err)
	}
	a.wantState(t, "again", lifecycle.Running)
	m, _ := a.Get(t.Context(), "again")
	st := m.Snapshot().GetStatus()
	if st.GetVmm().GetName() != vmtest.OtherName || st.GetVmmReason() != "cloud-hypervisor made the image" {
		t.Errorf("%s: %q", st.GetVmm().GetName(), st.GetVmmReason())
	}
}
