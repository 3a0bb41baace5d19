package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/disk"
	"github.com/vmlet/vmlet/launch"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/vmm"
)

// hibernation is a VM over a container disk that is saved in one pod and restored in others.
type hibernation struct {
	*preparedPod
	base, dir, id string
	want          map[string][]byte // its made disks, as they are in the image
}

// hibernate boots a VM, writes to its disks and saves it.
func hibernate(t *testing.T) *hibernation {
	h := &hibernation{preparedPod: newPreparedPod(podQEMU(t).scene(t)), want: make(map[string][]byte)}
	content := h.qcow2()
	var stop func()
	h.base, _, stop = h.imageContainer("root.sock", map[string][]byte{"disk/disk.img": content})
	h.prepared(`{"boot":{"kernel":{"path":"`+h.kernel+`"}},"disks":[{"name":"root","bus":"virtio"},{"name":"scratch","bus":"virtio"}]}`,
		launch.Disk{Name: "root", Overlay: &launch.Overlay{Base: h.base, Image: "quay.io/test/disk"}},
		launch.Disk{Name: "scratch", Raw: &launch.Raw{Size: 64 << 20}})
	h.connect()
	h.check(writeInto(filepath.Join(h.made, "scratch.img"), 5<<20, "the guest's own words"))
	h.boot(func(l *shim.Launch) { l.Plan = h.withDisks(h.vmm.plan(h.podScene), nil) })
	h.goesOn()
	volume := filepath.Join(h.root, "claim")
	h.check(os.Mkdir(volume, 0o700))
	h.give(volume)
	h.dir = filepath.Join(volume, "restore-web-20261124T000000Z")
	prepared, err := h.client.Save(h.ctx, shim.Save{Directory: h.dir, Manifest: memory.Manifest{VMM: memory.VMM{Name: h.vmm.name, Version: "test"}}}, nil, nil)
	h.check(err)
	if prepared.FilesBytes == 0 || prepared.FilesBytes > 4<<20 || prepared.Paused {
		t.Errorf("prepared %+v, want the bytes of the disks without their holes, of a guest that ran", prepared)
	}
	_, err = h.client.Commit(h.ctx, shim.Commit{})
	h.check(err)
	h.client.Close()
	h.id = prepared.ImageID
	h.wantExit(0, savedWords+h.id+" "+h.dir)
	stop()
	for _, name := range []string{"root.qcow2", "scratch.img"} {
		h.want[name], err = os.ReadFile(filepath.Join(h.made, name))
		h.check(err)
	}
	return h
}

// anotherPod has nothing of what was made, and the container disk by another file.
func (h *hibernation) anotherPod() {
	h.t.Helper()
	h.check(os.RemoveAll(h.made))
	h.check(os.Mkdir(h.made, 0o700))
	h.give(h.made)
	content := h.qcow2()
	h.base, _, _ = h.imageContainer("root.sock", map[string][]byte{"disk/disk.img": content})
}

// withDisks adds both disks; image is what the VM goes on from, nil if it boots.
func (h *hibernation) withDisks(p *plan.Plan, image *vmm.Image) *plan.Plan {
	scratch := filepath.Join(h.made, "scratch.img")
	withContainerDisk(p, filepath.Join(h.made, "root.qcow2"), h.base)
	p.Files = append(p.Files, plan.File{
		Kind: plan.FilePath, Field: "disks[1].path", Path: scratch, Direct: true, Write: true, DiskName: "scratch",
		Disk: &disk.Expectation{Field: "disks[1].path", Image: disk.Image{Path: scratch, Format: disk.Raw}},
	})
	p.Args = append(p.Args, "-add-fd", "fd=10,set=3", "-blockdev", "driver=file,filename=/dev/fdset/3,node-name=scratchfile,cache.direct=on",
		"-blockdev", "driver=raw,file=scratchfile,node-name=scratch", "-device", "virtio-blk-device,drive=scratch")
	for i := range p.Files {
		if f := &p.Files[i]; image != nil && (f.DiskName != "" || f.PartOf != "") {
			f.Identity = image.DiskIdentity(f.DiskName+f.PartOf, f.Layer)
			if f.Identity == nil {
				h.t.Errorf("%s: the image has no identity", f.Path)
			}
		}
	}
	return p
}

// restoring starts a pod's container that goes on from the image.
func (h *hibernation) restoring() {
	h.t.Helper()
	h.container("--restore", h.dir, "--once", "--made", h.made, "--sockets", h.sockets)
}

func (h *hibernation) launches(change func(*plan.Plan)) error {
	h.t.Helper()
	d, err := h.client.Describe(h.ctx, shim.Describe{})
	h.check(err)
	if d.Restore == nil || !d.Restore.Once {
		h.t.Fatalf("described as %+v", d)
	}
	manifest, err := memory.ReadManifest(bytes.NewReader(d.Restore.Manifest), "manifest")
	h.check(err)
	p := h.withDisks(h.vmm.restore(h.podScene, h.dir, false), &vmm.Image{Directory: h.dir, Manifest: manifest})
	p.User = nil
	if change != nil {
		change(p)
	}
	_, err = h.client.Launch(h.ctx, shim.Launch{Plan: p}, nil, nil)
	return err
}

func (h *hibernation) sameDisks() {
	h.t.Helper()
	for name, want := range h.want {
		got, err := os.ReadFile(filepath.Join(h.made, name))
		h.check(err)
		if !bytes.Equal(got, want) {
			h.t.Errorf("%s is not as it was when the VM was saved", name)
		}
	}
}

func writeInto(path string, off int64, text string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(text), off)
	return errors.Join(err, f.Close())
}

// TestPodHibernates: a guest goes on in another pod, over the disks that died with its
// first, and only once.
func TestPodHibernates(t *testing.T) {
	h := hibernate(t)
	h.anotherPod()
	h.restoring()
	h.connect()
	h.sameDisks()
	h.check(h.launches(nil))
	h.goesOn()
	h.waitFor(func() bool { _, err := os.Lstat(h.dir); return errors.Is(err, fs.ErrNotExist) })

	// And again, from there, paused.
	h.monitor("stop")
	prepared, err := h.client.Save(h.ctx, shim.Save{Directory: h.dir, Manifest: memory.Manifest{VMM: memory.VMM{Name: h.vmm.name, Version: "test"}}}, nil, nil)
	h.check(err)
	if !prepared.Paused {
		t.Error("the guest was paused, and that is not said")
	}
	_, err = h.client.Commit(h.ctx, shim.Commit{})
	h.check(err)
	h.client.Close()
	h.wantExit(0, savedWords)
	h.anotherPod()
	h.restoring()
	h.connect()
	h.check(h.launches(func(p *plan.Plan) { p.Paused = true }))
	h.waitFor(func() bool { _, err := os.Lstat(h.dir); return errors.Is(err, fs.ErrNotExist) })
	h.check(h.client.Resume(h.ctx))
	h.goesOn()
}

// TestPodRestoreRefusals: the pod's last words begin with the reason, nothing of the image
// is lost, and where the guest has not run it may be tried again.
func TestPodRestoreRefusals(t *testing.T) {
	h := hibernate(t)
	manifest := filepath.Join(h.dir, memory.ManifestName)
	t.Run("a disk that is not the image's", func(t *testing.T) {
		h.anotherPod()
		h.restoring()
		h.connect()
		h.check(writeInto(filepath.Join(h.made, "scratch.img"), 1024, "a superblock"))
		err := h.launches(nil)
		wantCode(t, err, shim.CodeChangedDisk, "disks[1].path", "content differs")
		h.check(h.client.Release(h.ctx, refusal(err.Error())))
		h.client.Close()
		h.wantExit(exitFailed, "DiskChanged: disks[1].path: ")
	})
	t.Run("damaged", func(t *testing.T) {
		path := filepath.Join(h.dir, "file-1")
		whole, err := os.ReadFile(path)
		h.check(err)
		h.check(writeInto(path, 5<<20, "X"))
		h.anotherPod()
		h.restoring()
		h.wantExit(exitFailed, "ImageDamaged: files[1] of the image to restore: "+path+": damaged: ")
		h.check(os.WriteFile(path, whole, 0o600))
	})
	t.Run("the agent says why", func(t *testing.T) {
		h.anotherPod()
		h.restoring()
		h.connect()
		h.check(h.client.Release(h.ctx, &contract.Ending{Reason: contract.RestoreImageUnfit, Message: "the CPU has no avx512"}))
		h.client.Close()
		if last := h.wantExit(exitFailed); last != "ImageUnfit: the CPU has no avx512" {
			t.Errorf("last words %q", last)
		}
	})
	t.Run("cut off, and again", func(t *testing.T) {
		h.anotherPod()
		h.check(os.WriteFile(filepath.Join(h.made, ".restoring"), []byte("half"), 0o600))
		h.check(os.WriteFile(filepath.Join(h.made, "scratch.img"), []byte("old"), 0o600))
		h.check(os.Symlink(h.vmlet, filepath.Join(h.made, "root.qcow2")))
		h.restoring()
		h.connect()
		h.sameDisks()
		if st, err := os.Lstat(filepath.Join(h.made, "root.qcow2")); err != nil || !st.Mode().IsRegular() {
			t.Errorf("root.qcow2: %v, %v", st, err)
		}
		h.client.Close()
		h.check(h.cmd.Process.Signal(unix.SIGTERM))
		<-h.ended
	})
	t.Run("read-only volume", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("needs root, to take the right to write")
		}
		h.anotherPod()
		h.check(os.Chmod(h.dir, 0o500))
		h.restoring()
		h.connect()
		err := h.launches(nil)
		h.check(os.Chmod(h.dir, 0o700))
		if err == nil || !strings.Contains(err.Error(), "can't be marked as used") {
			t.Fatalf("error %v, want that it can't be marked", err)
		}
		h.check(h.client.Release(h.ctx, refusal(err.Error())))
		h.client.Close()
		h.wantExit(exitFailed, "can't be marked as used")
	})
	t.Run("used", func(t *testing.T) {
		img, err := memory.Open(h.dir)
		h.check(err)
		h.anotherPod()
		h.restoring()
		h.connect() // both pods have found it unused
		h.check(img.MarkUsed("pod web-1"))
		h.check(img.Close())
		h.check(os.Chmod(filepath.Join(h.dir, memory.UsedName), 0o644))
		err = h.launches(nil)
		if err == nil || !strings.Contains(err.Error(), `by "pod web-1"`) {
			t.Fatalf("error %v, want that it was used", err)
		}
		h.check(h.client.Release(h.ctx, refusal("vm web: "+err.Error())))
		h.client.Close()
		h.wantExit(exitFailed, "ImageUsed: vm web: ")
		h.restoring()
		h.wantExit(exitFailed, "ImageUsed: ", `by "pod web-1"`)
	})
	t.Run("not there", func(t *testing.T) {
		h.check(os.Remove(manifest))
		h.restoring()
		h.wantExit(exitFailed, "ImageMissing: ", h.dir, "no "+memory.ManifestName)
	})
}

// TestRestoreReasons decides what is worth another try.
func TestRestoreReasons(t *testing.T) {
	for _, test := range []struct {
		text string
		err  error
		want string
	}{
		{"x", nil, "x"},
		{"x", errors.New("the VMM"), "x"},
		{"x", unix.ENOSPC, "x"},
		{"x", fmt.Errorf("launch: %w", &memory.UsedError{}), "ImageUsed: x"},
		{"ImageUnfit: CPU", &memory.UsedError{}, "ImageUnfit: CPU"},
		{"x", &memory.DamagedError{}, "ImageDamaged: x"},
		{"x", &memory.DamagedError{Err: unix.EIO}, "x"},
		{"x", &memory.FormatError{}, "ImageDamaged: x"},
		{"x", &memory.FormatError{Err: memory.ErrNewerFormat}, "ImageUnfit: x"},
		{"x", memory.ErrNotImage, "ImageMissing: x"},
		{"x", &missingImage{fs.ErrNotExist}, "ImageMissing: x"},
		{"x", fs.ErrNotExist, "x"},
		{"x", &shim.Error{Code: shim.CodeChangedDisk}, "DiskChanged: x"},
		{"x", &shim.Error{Code: shim.CodeSpace}, "x"},
	} {
		if got := withReason(contract.ReadSentence(test.text), test.err).Sentence(); got != test.want {
			t.Errorf("%q of %v: %q, want %q", test.text, test.err, got, test.want)
		}
	}
}

// TestPutBackStaysInItsFolder: an image does not choose other files of the pod.
func TestPutBackStaysInItsFolder(t *testing.T) {
	root := t.TempDir()
	for _, path := range []string{"/etc/passwd", root + "/other", root + "/made", root + "/made/below/disk", root + "/made2/disk", root + "/made/link/disk"} {
		dir := filepath.Join(root, "image")
		made := filepath.Join(root, "made")
		if err := errors.Join(os.RemoveAll(dir), os.RemoveAll(made), os.Mkdir(made, 0o700), os.Symlink(root, filepath.Join(made, "link"))); err != nil {
			t.Fatal(err)
		}
		imageWith(t, dir, path)
		o := podOptions{folders: folders{made: made}, restore: shim.PodRestore{Directory: dir}}
		_, err := o.readImage(t.Context(), nil)
		if err == nil || !strings.Contains(err.Error(), "files[0]") {
			t.Errorf("%s: error %v", path, err)
		}
		if _, err := os.Lstat(filepath.Join(root, "other")); err == nil {
			t.Errorf("%s: a file was made beside the folder", path)
		}
	}
}

// imageWith is an image with one file.
func imageWith(t *testing.T, dir, path string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk")
	w, err := memory.Create(dir, memory.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	if err := os.WriteFile(file, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := w.StateFile(); err != nil {
		t.Fatal(err)
	}
	if err := w.CopyFile(t.Context(), f, path, func(uint64) {}); err != nil {
		t.Fatal(err)
	}
	err = w.Commit(t.Context(), &memory.Manifest{Layout: memory.LayoutStream, VMM: memory.VMM{Name: "x"}, MemorySize: 1 << 20, Regions: []memory.Region{{Name: "ram", Size: 1 << 20}}})
	if err != nil {
		t.Fatal(err)
	}
}

// TestUnshownImage: what an agent says of an image that it was not shown is not believed of the image.
func TestUnshownImage(t *testing.T) {
	got := unshown(contract.Ending{Reason: contract.RestoreImageDamaged, Message: "/claim/one/manifest.json: unexpected end"})
	if got.Reason != "" {
		t.Errorf("it has reason %q, and is not tried again", got.Reason)
	}
	if !strings.HasPrefix(got.Message, "the agent of the node knows no image in a volume that is attached") || !strings.HasSuffix(got.Message, ": unexpected end") {
		t.Errorf("the message is %q", got.Message)
	}
	if got := unshown(*refusal("no KVM")); got.Message != "no KVM" {
		t.Errorf("%q", got.Message)
	}
}

// TestOutcome: what a pod's owner is told of a VM's end, and whether it has failed.
func TestOutcome(t *testing.T) {
	for _, test := range []struct {
		exit          *shim.Exit
		refusal       *contract.Ending
		reason, words string
		failed        bool
	}{
		{nil, nil, contract.GuestUnstarted, "ended before the guest ran", false},
		{nil, refusal("no KVM"), "", "no KVM", true},
		{nil, &contract.Ending{Reason: contract.RestoreImageUsed, Message: "by web"}, contract.RestoreImageUsed, "by web", true},
		{nil, &contract.Ending{Reason: contract.GuestShutdown, Message: "it did"}, "", "it did", true},
		{&shim.Exit{Reason: shim.ReasonShutdown}, nil, contract.GuestShutdown, "the guest shut down", false},
		{&shim.Exit{Reason: shim.ReasonKilled}, nil, "", "", false},
		{&shim.Exit{Reason: shim.ReasonSaved, ImageID: "id-1", ImageDirectory: "restore-web"}, nil, contract.GuestSaved, "the guest was saved to restore-web", false},
		{&shim.Exit{Reason: shim.ReasonSuspended}, nil, contract.GuestSuspended, "the guest suspended itself to disk", false},
		{&shim.Exit{Reason: shim.ReasonPanicked}, nil, contract.GuestPanicked, "the guest panicked", true},
		{&shim.Exit{Reason: shim.ReasonCrashed, Code: 3, LastWords: "boo"}, nil, "", `the VMM ended unexpectedly, exit status 3, signal "": boo`, true},
		{&shim.Exit{Reason: shim.ReasonKilled}, refusal("deaf"), "", "deaf", true},
	} {
		got := outcome(test.exit, test.refusal)
		if got.Reason != test.reason || got.Message != test.words {
			t.Errorf("%+v, %+v: %q, %q, want %q, %q", test.exit, test.refusal, got.Reason, got.Message, test.reason, test.words)
		}
		if test.exit != nil && (got.Image != test.exit.ImageID || got.Directory != test.exit.ImageDirectory) {
			t.Errorf("%+v: image %q in %q", test.exit, got.Image, got.Directory)
		}
		if failed(got) != test.failed {
			t.Errorf("%+v, %+v: failed %t", test.exit, test.refusal, !test.failed)
		}
	}
}

// TestPodKilledAfterItsRestore: an image that its guest did not live to see removed is
// nobody's to go on from.
func TestPodKilledAfterItsRestore(t *testing.T) {
	h := hibernate(t)
	lock, err := memory.LockShared(h.dir) // keeps the shim from removing it
	h.check(err)
	h.anotherPod()
	h.restoring()
	h.connect()
	h.check(h.launches(nil))
	h.goesOn()
	h.waitFor(func() bool { return strings.Contains(h.stderr.String(), "failed to remove the memory image") })
	h.check(h.cmd.Process.Kill())
	<-h.ended
	h.check(lock.Unlock())
	img, err := memory.Open(h.dir)
	h.check(err)
	h.check(img.Verify(h.ctx, nil)) // whole, and yet refused
	h.check(img.Close())
	h.client.Close()
	h.check(os.RemoveAll(filepath.Join(h.volume, shim.SocketName)))
	h.anotherPod()
	h.restoring()
	select {
	case <-h.ended:
	case <-h.ctx.Done():
		t.Fatal("it goes on")
	}
	last, err := os.ReadFile(h.terminationLog)
	h.check(err)
	if contract.ReadEnding(string(last)).Reason != contract.RestoreImageUsed {
		t.Errorf("last words %q", last)
	}
	volume, err := os.Open(filepath.Dir(h.dir))
	h.check(err)
	defer volume.Close()
	removed, err := memory.Clear(volume, func(string) bool { return true })
	h.check(err)
	if len(removed) != 1 {
		t.Errorf("the next save clears %v, want the used image", removed)
	}
}
