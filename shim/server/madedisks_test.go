package server

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/disk"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/test/faultfs"
)

// madeScene is a VM in a pod: root and a medium that is only read were made there, base was
// not. Its images go to a volume.
func madeScene(t *testing.T, volume string) *diskScene {
	t.Helper()
	dir := t.TempDir()
	made := filepath.Join(dir, "made")
	d := &diskScene{newScene(t, func(o *Options) { o.Pod = &Pod{Made: made} }), made}
	d.check(os.Mkdir(made, 0o700))
	content := make([]byte, 4<<20)
	rand.Read(content)
	d.check(os.WriteFile(d.path(rootFile), content, 0o600))
	d.check(os.Truncate(d.path(rootFile), 32<<20))
	d.check(os.WriteFile(d.path(dataFile), content[:64<<10], 0o600))
	d.check(os.WriteFile(filepath.Join(dir, baseFile), content[:64<<10], 0o600))
	p := d.plan("well")
	for _, f := range []plan.File{
		{Path: filepath.Join(dir, baseFile), PartOf: "root", Layer: 1},
		{Path: d.path(rootFile), DiskName: "root", Write: true},
		{Path: d.path(dataFile), PartOf: "seed"},
	} {
		f.Kind, f.Field = plan.FilePath, "disks[0].path"
		f.Disk = &disk.Expectation{Field: f.Field, Image: disk.Image{Path: f.Path, Format: disk.Raw}}
		p.Files = append(p.Files, f)
	}
	d.check(d.launchPlan(p))
	return d
}

func TestMadeDisksAreSaved(t *testing.T) {
	volume := t.TempDir()
	d := madeScene(t, volume)
	dir := filepath.Join(volume, "image")
	prepared, err := d.client.Save(d.ctx, d.saveArgs(dir), nil, nil)
	d.check(err)
	if want := uint64(4<<20 + 64<<10); prepared.FilesBytes != want {
		t.Errorf("%d bytes of disks, want %d", prepared.FilesBytes, want)
	}
	_, err = d.client.Commit(d.ctx, shim.Commit{KeepRunning: true})
	d.check(err)
	img, err := memory.Open(dir)
	d.check(err)
	defer img.Close()
	d.check(img.Verify(d.ctx, nil))
	var paths []string
	for _, f := range img.Manifest().Files {
		paths = append(paths, f.Path)
		back, err := os.Create(filepath.Join(d.root, f.Name))
		d.check(err)
		d.check(img.CopyOut(d.ctx, f, back))
		d.check(back.Close())
		got, err := os.ReadFile(back.Name())
		d.check(err)
		want, err := os.ReadFile(f.Path)
		d.check(err)
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not as it was", f.Path)
		}
	}
	if want := []string{d.path(rootFile), d.path(dataFile)}; !slices.Equal(paths, want) {
		t.Errorf("the image has %v, want %v", paths, want)
	}
}

// TestMadeDisksFail: whatever fails at them, the guest goes on, and nothing is left.
func TestMadeDisksFail(t *testing.T) {
	fsys := faultfs.ForTest(t)
	d := madeScene(t, fsys.Path())
	dir := filepath.Join(fsys.Path(), "image")
	goesOn := func(t *testing.T) {
		t.Helper()
		d.waitFor(d.machine.isRunning)
		d.noFile(dir)
		d.waitFor(d.nothingNoted)
	}
	for _, test := range []struct {
		name string
		op   faultfs.Op
		file string
		code shim.Code
	}{
		{"no space", faultfs.OpWrite, "file-0", shim.CodeSpace},
		{"not durable", faultfs.OpFsync, "file-1", shim.CodeSpace},
		{"not made", faultfs.OpCreate, "file-1", shim.CodeSpace},
	} {
		t.Run(test.name, func(t *testing.T) {
			fsys.Arm(faultfs.Fault{Op: test.op, Name: test.file, Errno: syscall.ENOSPC})
			_, err := d.client.Save(d.ctx, d.saveArgs(dir), nil, nil)
			wantCode(t, err, test.code)
			if hits := fsys.Disarm(); hits == 0 {
				t.Error("the fault was not hit")
			}
			goesOn(t)
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(d.ctx)
		defer cancel()
		_, err := d.client.Save(ctx, d.saveArgs(dir), nil, func(p shim.Progress) {
			if p.Step == "saving disks" {
				cancel()
			}
		})
		if err == nil { // it was quicker
			d.check(d.client.Abort(d.ctx))
		}
		goesOn(t)
	})
}

// TestMadeDisksCount: room for them, too, is looked for before the guest is stopped.
func TestMadeDisksCount(t *testing.T) {
	volume := t.TempDir()
	if err := unix.Mount("tmpfs", volume, "tmpfs", 0, "size=35m"); err != nil {
		t.Skipf("mount: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(volume, unix.MNT_DETACH) })
	d := madeScene(t, volume)
	d.machine.onSave(func(context.Context, *os.File) error { return errors.New("the guest was stopped") })
	_, err := d.client.Save(d.ctx, d.saveArgs(filepath.Join(volume, "image")), nil, nil)
	wantCode(t, err, shim.CodeSpace)
	d.noFile(filepath.Join(volume, "image"))
}

// TestSaveClearsItsVolume: of what killed saves and restores of this VM have left, and of
// nothing else.
func TestSaveClearsItsVolume(t *testing.T) {
	s, volume := attachedScene(t, nil)
	for _, name := range []string{"restore-web-20260101T000000Z", "restore-web-1-20260101T000000Z", "restore-we-20260101T000000Z", "web-20260101T000000Z"} {
		s.check(os.Mkdir(filepath.Join(volume.Name(), name), 0o700))
		s.check(os.WriteFile(filepath.Join(volume.Name(), name, memory.StateName), []byte("half"), 0o600))
	}
	names := func() (names []string) {
		entries, err := os.ReadDir(volume.Name())
		s.check(err)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	_, err := s.client.Save(s.ctx, s.attachedArgs("image"), volume, nil)
	s.check(err)
	s.check(s.client.Abort(s.ctx))
	if got := names(); len(got) != 4 {
		t.Errorf("a save of another name has left %v", got)
	}
	_, err = s.client.Save(s.ctx, s.attachedArgs("restore-web-20260202T000000Z"), volume, nil)
	s.check(err)
	s.check(s.client.Abort(s.ctx))
	if want := []string{"restore-we-20260101T000000Z", "restore-web-1-20260101T000000Z", "web-20260101T000000Z"}; !slices.Equal(names(), want) {
		t.Errorf("left are %v, want %v", names(), want)
	}
}

// TestExpected: what a disk must be in another pod.
func TestExpected(t *testing.T) {
	saved := disk.Identity{Kind: disk.KindFile, Device: 1, Inode: 2, Size: 3, ModTimeNs: 4, BornNs: 5, FilesystemUUID: "a", FilesystemID: "b", HeaderSum: "h", SampleSum: "s"}
	moved := disk.Identity{Kind: disk.KindFile, Device: 11, Inode: 12, Size: 3, ModTimeNs: 14, BornNs: 15, FilesystemUUID: "c", FilesystemID: "d", HeaderSum: "h", SampleSum: "s"}
	with := func(change func(*disk.Identity)) disk.Identity {
		now := moved
		change(&now)
		return now
	}
	o := &opener{sockets: "/sockets", moved: []memory.File{{Path: "/made/root.qcow2"}}}
	for _, test := range []struct {
		name, path string
		now        disk.Identity
		says       string // empty: it may go on
	}{
		{"a claim's, as it was", "/disks/data/disk.img", saved, ""},
		{"a claim's, another file", "/disks/data/disk.img", moved, "inode"},
		{"made, and not in the image", "/made/scratch.img", moved, "inode"},
		{"made, brought back", "/made/root.qcow2", moved, ""},
		{"made, other content", "/made/root.qcow2", with(func(i *disk.Identity) { i.SampleSum = "x" }), "content differs"},
		{"handed out", "/sockets/root.sock", moved, ""},
		{"handed out, other size", "/sockets/root.sock", with(func(i *disk.Identity) { i.Size = 9 }), "size"},
		{"handed out, other header", "/sockets/root.sock", with(func(i *disk.Identity) { i.HeaderSum = "x" }), "header"},
		{"handed out, a device now", "/sockets/root.sock", with(func(i *disk.Identity) { i.Kind = disk.KindBlock }), "kind"},
		{"beside the sockets", "/sockets/below/root.sock", moved, "inode"},
	} {
		f := &plan.File{Path: test.path, Field: "disks[0].path", Identity: &saved}
		err := checkIdentity(f, o.expected(f, test.now), test.now, false)
		if test.says == "" && err != nil || test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
			t.Errorf("%s: error %v, want %q", test.name, err, test.says)
		}
	}
	if o.expected(&plan.File{Path: "/sockets/root.sock"}, moved) != nil {
		t.Error("a disk that may be any is compared")
	}
}

// TestWatchedDevices: a block device shows that it has changed, and never that it has not: for that
// somebody has to have watched it.
func TestWatchedDevices(t *testing.T) {
	saved := disk.Identity{Kind: disk.KindBlock, Device: 1, Size: 1 << 20, SampleSum: "sha256:a"}
	other, elsewhere, written := saved, saved, saved
	other.Size, elsewhere.Device, written.SampleSum = 2<<20, 2, "sha256:b"
	f := &plan.File{Path: "/dev/vmlet/data", Field: "disks[0].path", Identity: &saved}
	for _, test := range []struct {
		name    string
		now     disk.Identity
		watched bool
		says    string // empty: it may go on
	}{
		{"not watched", saved, false, "cannot be shown to be unchanged"},
		{"watched", saved, true, ""},
		{"watched, attached elsewhere", elsewhere, true, ""},
		{"watched, written to", written, true, "content differs"},
		{"watched, another", other, true, "size"},
	} {
		err := checkIdentity(f, f.Identity, test.now, test.watched)
		if test.says == "" && err != nil || test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
			t.Errorf("%s: error %v, want %q", test.name, err, test.says)
		}
	}
	for restore, want := range map[*shim.PodRestore]bool{nil: false, {}: false, {WatchedDevices: true}: true} {
		o := &Options{Pod: &Pod{Described: shim.Described{Restore: restore}}}
		if got := o.watchedDevices(); got != want {
			t.Errorf("%+v: %v", restore, got)
		}
	}
	if (&Options{}).watchedDevices() {
		t.Error("a shim in no pod takes devices for watched")
	}
}

// TestOnceIsNotLeftOut: an image that restores once is not launched past its mark.
func TestOnceIsNotLeftOut(t *testing.T) {
	s := newScene(t, func(o *Options) {
		o.Pod = &Pod{Described: shim.Described{Restore: &shim.PodRestore{Directory: "/claim/image", Once: true}}}
	})
	for name, restore := range map[string]*plan.Restore{"boots": nil, "another image": {Directory: "/claim/other", ImageID: "x"}} {
		p := s.plan("well")
		p.Restore = restore
		_, err := s.client.Launch(s.ctx, shim.Launch{Plan: p}, nil, nil)
		if err == nil {
			t.Fatalf("%s: it is launched", name)
		}
		if name == "boots" {
			wantCode(t, err, shim.CodeInvalid)
		}
		if s.machine.isRunning() {
			t.Errorf("%s: the guest runs", name)
		}
	}
}

// TestUsedImageIsRunOn: once the image is marked as used, from which nobody could start the guest again, no launch is
// undone: the guest goes on without the agent, and ends in good order with the shim.
func TestUsedImageIsRunOn(t *testing.T) {
	for name, ends := range map[string]struct {
		begin  func(d *diskScene)
		begun  func(s *Server) bool // s.mu is held
		reason shim.Reason          // of the VMM's end; empty: it runs
	}{
		"the agent goes away": {func(d *diskScene) { d.client.Close() }, func(s *Server) bool { return len(s.conns) == 0 }, ""},
		"the shim is to end":  {func(d *diskScene) { d.stop() }, func(s *Server) bool { return s.closing }, shim.ReasonShutdown},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDiskScene(t, t.TempDir())
			image := d.saved()
			d.options.Pod = &Pod{Described: shim.Described{Restore: &shim.PodRestore{Directory: image.Directory, Once: true}}}
			d.again()
			d.machine.ending = control.Ending{Shutdown: true}
			begun := make(chan struct{})
			d.machine.onContinue(func() error {
				d.machine.onContinue(nil) // once is enough
				defer close(begun)
				ends.begin(d)
				d.waitFor(func() bool {
					d.server.mu.Lock()
					defer d.server.mu.Unlock()
					return ends.begun(d.server)
				})
				return nil
			})
			_ = d.launchPlan(d.planWith(image)) // its connection may have ended
			<-begun
			d.waitFor(func() bool {
				d.server.mu.Lock()
				defer d.server.mu.Unlock()
				return d.server.op == nil
			})
			if err := d.server.LaunchError(); err != nil {
				t.Errorf("the launch: %v", err)
			}
			if ends.reason == "" {
				d.client = d.dial()
				if !d.machine.isRunning() {
					t.Error("the guest does not run")
				}
				return
			}
			err := <-d.ended
			d.check(err)
			d.ended <- err // for the cleanup
			if got := d.exit(); got.Reason != ends.reason {
				t.Errorf("the VMM ended as %+v, want %s", got, ends.reason)
			}
		})
	}
}

// TestImageIsLetGo: a disk that doesn't answer when the image is closed does not keep the agent from a guest that has gone on
// from it. Of another launch all is taken back first.
func TestImageIsLetGo(t *testing.T) {
	for _, test := range []struct{ once, runs, waits bool }{{true, true, false}, {true, false, true}, {false, true, true}} {
		d := newDiskScene(t, t.TempDir())
		image := d.saved()
		opened, err := memory.Open(image.Directory)
		d.check(err)
		s := &session{o: Options{ClearWithin: time.Millisecond, Pod: &Pod{Described: shim.Described{Restore: &shim.PodRestore{Directory: image.Directory, Once: test.once}}}}}
		l := &launch{s: &launcher{session: s, source: &source{session: s}}, image: opened, log: slog.New(slog.DiscardHandler)}
		answers, ended := make(chan struct{}), make(chan error)
		l.meanwhile.Push(func() error { <-answers; return opened.Close() })
		go func() { ended <- l.cleanUp(test.runs) }()
		if !test.waits {
			if err := <-ended; err == nil || !strings.Contains(err.Error(), "has not answered for 1ms") {
				t.Errorf("%+v: error %v", test, err)
			}
			close(answers)
			d.waitFor(func() bool { _, err := os.Stat(image.Directory); return errors.Is(err, fs.ErrNotExist) })
			continue
		}
		select {
		case err := <-ended:
			t.Errorf("%+v: it did not wait: %v", test, err)
		case <-time.After(20 * time.Millisecond):
		}
		close(answers)
		d.check(<-ended)
	}
}
