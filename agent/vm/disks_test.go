package vm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/test/loopdevice"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

// TestDiskHasOneWriter: a disk that a VM writes to is no other's, by whatever name, also to an agent that has
// adopted the VM, and one that VMs read nobody writes to. What a VM has no more is in nobody's way.
func TestDiskHasOneWriter(t *testing.T) {
	dir := t.TempDir()
	file, link, symlink, free := filepath.Join(dir, "disk"), filepath.Join(dir, "link"), filepath.Join(dir, "symlink"), filepath.Join(dir, "free")
	for _, path := range []string{file, free} {
		if err := os.WriteFile(path, make([]byte, 4096), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(file, link); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, symlink); err != nil {
		t.Fatal(err)
	}
	testOneWriter(t, file, free, "one file", file, link, symlink)
}

// TestDeviceHasOneWriter: a block device is known by its number.
func TestDeviceHasOneWriter(t *testing.T) {
	device, free := loopdevice.New(t, 1<<20), loopdevice.New(t, 1<<20)
	var st unix.Stat_t
	if err := unix.Stat(device, &st); err != nil {
		t.Fatal(err)
	}
	node := filepath.Join(t.TempDir(), "node")
	if err := unix.Mknod(node, unix.S_IFBLK|0o600, int(st.Rdev)); err != nil {
		t.Skip(err)
	}
	testOneWriter(t, device, free, "block device 7:", device, node)
}

// testOneWriter has a VM "one" write to a disk, and another one try it by its names; free is another disk.
func testOneWriter(t *testing.T, disk, free, kind string, names ...string) {
	t.Helper()
	w := newWorld(t)
	a := w.start()
	create := func(name string, disks ...*specv1.Disk) {
		t.Helper()
		s := vmtest.Spec(name)
		s.Disks = disks
		if _, err := a.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	create("one", &specv1.Disk{Name: "root", Path: disk})
	create("free", &specv1.Disk{Name: "other", Path: free})
	for _, name := range []string{"reader", "reader-too"} {
		create(name, &specv1.Disk{Name: "data", Path: disk, ReadOnly: true, Bus: "virtio"})
	}
	create("below", &specv1.Disk{Name: "top", Path: disk + ".qcow2", Format: "qcow2", BackingFiles: []*specv1.BackingFile{{Path: names[len(names)-1]}}})
	create("twice", &specv1.Disk{Name: "a", Path: names[len(names)-1]}, &specv1.Disk{Name: "b", Path: disk})
	for i, path := range names {
		create("two-"+string(rune('a'+i)), &specv1.Disk{Name: "data", Path: path})
	}
	refused := func(what string, err error) {
		t.Helper()
		vmtest.WantCode(t, what, err, codes.FailedPrecondition)
		for _, want := range []string{"disks[", kind, `disk "root" of vm one`} {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %q does not have %q", what, err, want)
			}
		}
	}
	starts := func() {
		t.Helper()
		for i, path := range names {
			name := "two-" + string(rune('a'+i))
			_, err := a.Manager.Start(t.Context(), name, StartOptions{}, nil)
			refused(name+" with "+path, err)
			if err != nil && !strings.Contains(err.Error(), `disk "data" of vm `+name) {
				t.Errorf("error %q does not name the VM that is refused", err)
			}
		}
	}
	if names[len(names)-1] != disk {
		_, err := a.Manager.Start(t.Context(), "twice", StartOptions{}, nil)
		vmtest.WantCode(t, "one disk by two names", err, codes.FailedPrecondition)
	}
	a.mustStart(t, "one")
	starts()
	a.mustStart(t, "free")
	for _, name := range []string{"reader", "below"} {
		_, err := a.Manager.Start(t.Context(), name, StartOptions{}, nil)
		refused("what one would read, the other writes to: "+name, err)
	}
	attach := &nodev1.AttachRequest{Name: "free", Device: &nodev1.AttachRequest_Disk{Disk: &specv1.Disk{Name: "late", Path: names[len(names)-1]}}}
	_, _, err := a.Attach(t.Context(), attach)
	refused("attach", err)
	a.end()
	a = w.start()
	starts()
	if _, err := a.Kill(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.Attach(t.Context(), attach); err != nil {
		t.Fatal(err)
	}
	_, err = a.Manager.Start(t.Context(), "one", StartOptions{}, nil)
	vmtest.WantCode(t, "a disk that was attached to another", err, codes.FailedPrecondition)
	if _, err := a.Detach(t.Context(), "free", "late"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"reader", "reader-too", "below"} {
		a.mustStart(t, name)
	}
	for _, name := range []string{"reader", "reader-too", "below"} {
		_, err = a.Manager.Start(t.Context(), "one", StartOptions{}, nil)
		vmtest.WantCode(t, "a disk that others read", err, codes.FailedPrecondition)
		if err != nil && !strings.Contains(err.Error(), "and reads it") {
			t.Errorf("error %q does not say that the other one reads it", err)
		}
		if _, err := a.Kill(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	a.mustStart(t, "one")
}

// TestShareableDisk: VMs have a disk together that is shareable in each of them, and none of them can be saved as long as
// it has that, also if the disk comes later.
func TestShareableDisk(t *testing.T) {
	disk := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(disk, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	a := newWorld(t).start()
	create := func(name string, shareable bool) {
		t.Helper()
		s := vmtest.Spec(name)
		s.Disks = []*specv1.Disk{{Name: "data", Path: disk, Shareable: shareable}}
		if _, err := a.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(what, want string, err error) {
		t.Helper()
		vmtest.WantCode(t, what, err, codes.FailedPrecondition)
		if err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %q does not have %q", what, err, want)
		}
	}
	create("one", true)
	create("two", true)
	create("alone", false)
	a.mustStart(t, "one")
	a.mustStart(t, "two")
	_, err := a.Manager.Start(t.Context(), "alone", StartOptions{}, nil)
	refused("a disk that is shareable elsewhere", "shareable in each of them", err)

	save := func(name string) error {
		_, _, err := a.Save(t.Context(), name, place.SaveOptions{Directory: filepath.Join(t.TempDir(), "image")}, nil)
		return err
	}
	refused("a save", "disks[0].shareable", save("one"))
	if _, err := a.Detach(t.Context(), "two", "data"); err != nil {
		t.Fatal(err)
	}
	if err := save("two"); err != nil {
		t.Errorf("a save when the disk is detached: %v", err)
	}
	for _, name := range []string{"one", "two"} {
		if _, err := a.Kill(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	a.mustStart(t, "alone")
	_, err = a.Manager.Start(t.Context(), "one", StartOptions{}, nil)
	refused("a shareable disk that another has for itself", "shareable in each of them", err)

	later := filepath.Join(t.TempDir(), "later")
	if err := os.WriteFile(later, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	attach := &nodev1.AttachRequest{Name: "alone", Device: &nodev1.AttachRequest_Disk{Disk: &specv1.Disk{Name: "later", Path: later, Shareable: true}}}
	if _, _, err := a.Attach(t.Context(), attach); err != nil {
		t.Fatal(err)
	}
	refused("a save with a disk that was attached", "disks[1].shareable", save("alone"))
}

// TestDiskOfVMThatMayRun: a disk has one writer also while that one is being started or attached the disk, and if
// its shim does not answer an agent that has come back.
func TestDiskOfVMThatMayRun(t *testing.T) {
	w := newWorld(t)
	a := w.start()
	disk, free := filepath.Join(t.TempDir(), "disk"), filepath.Join(t.TempDir(), "free")
	for _, path := range []string{disk, free} {
		if err := os.WriteFile(path, make([]byte, 4096), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	create := func(name, path string) {
		t.Helper()
		s := vmtest.Spec(name)
		s.Disks = []*specv1.Disk{{Name: "root", Path: path}}
		if _, err := a.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(what, name, holder string) {
		t.Helper()
		_, err := a.Manager.Start(t.Context(), name, StartOptions{}, nil)
		vmtest.WantCode(t, what, err, codes.FailedPrecondition)
		if err != nil && !strings.Contains(err.Error(), holder) {
			t.Errorf("%s: error %q does not name %q", what, err, holder)
		}
	}
	create("one", disk)
	create("early", disk)
	w.Hooks["launch"] = func() { refused("while the other one is started", "early", `disk "root" of vm one`) }
	a.mustStart(t, "one")
	a.end()
	w.FailStep("process", unix.EMFILE)
	a = w.start()
	w.FailStep("process", nil)
	a.wantState(t, "one", lifecycle.Crashed)
	create("two", disk)
	create("three", free)
	refused("while it is not known whether the other one runs", "two", `disk "root" of vm one`)
	if _, err := a.Kill(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	a.mustStart(t, "three")
	w.Hooks["attach"] = func() { refused("while the other one gets it", "two", `disk "late" of vm three`) }
	attach := &nodev1.AttachRequest{Name: "three", Device: &nodev1.AttachRequest_Disk{Disk: &specv1.Disk{Name: "late", Path: disk}}}
	if _, _, err := a.Attach(t.Context(), attach); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Detach(t.Context(), "three", "late"); err != nil {
		t.Fatal(err)
	}
	a.mustStart(t, "two")
}

// TestDisksOfVMsThatStartAtATime: of two VMs that have looked at each other's disks before either was being
// started, one is refused all the same.
func TestDisksOfVMsThatStartAtATime(t *testing.T) {
	w := newWorld(t)
	a := w.start()
	disk := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(disk, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"one", "two"} {
		s := vmtest.Spec(name)
		s.Disks = []*specv1.Disk{{Name: "root", Path: disk}}
		if _, err := a.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	// The manifest is made when the disks have been looked at.
	w.Hooks["manifest"] = func() { a.mustStart(t, "two") }
	_, err := a.Manager.Start(t.Context(), "one", StartOptions{}, nil)
	vmtest.WantCode(t, "the second of them", err, codes.FailedPrecondition)
	if err != nil && !strings.Contains(err.Error(), `disk "root" of vm two`) {
		t.Errorf("error %q does not name the other one's disk", err)
	}
	a.wantState(t, "two", lifecycle.Running)
}
