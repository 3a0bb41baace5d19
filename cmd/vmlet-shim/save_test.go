package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/disk"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/test/suites"
)

type sysStat = syscall.Stat_t

func itoa(n int) string { return strconv.Itoa(n) }

func TestSaveRestore(t *testing.T) {
	t.Parallel()
	forEachQEMU(t, func(t *testing.T, q qemu) {
		s := newScene(t)
		s.launch(s.plan(q))
		c := s.console(1 << 20)
		c.expect("filled 8")
		before := c.count()
		dir := filepath.Join(s.root, "image")
		committed, err := s.save(dir, false)
		s.check(err)
		if e := committed.Exit; e == nil || e.Reason != shim.ReasonSaved || e.ImageDirectory != dir {
			t.Errorf("committed: %+v", committed)
		}
		s.client.Close()
		s.gone(shim.ReasonSaved)

		s.again(s.restorePlan(q, dir, false))
		c = s.console(0)
		if after := c.count(); after < before {
			t.Errorf("it counted %d before and %d after", before, after)
		}
		c.verify()
		if !q.ten {
			return
		}
		_, err = s.client.Kill(s.ctx)
		s.check(err)
		s.client.Close()
		s.gone(shim.ReasonKilled)
		s.restoreLazily(q, dir, before)
	})
}

// restoreLazily also saves what was restored so, and restores that.
func (s *scene) restoreLazily(q qemu, dir string, before int) {
	s.t.Helper()
	s.again(s.restorePlan(q, dir, true))
	c := s.console(0)
	if after := c.count(); after < before {
		s.t.Errorf("it counted %d before and %d after", before, after)
	}
	c.verify()
	if err := memory.Remove(dir); !errors.Is(err, memory.ErrInUse) {
		s.t.Errorf("removing an image in use: %v", err)
	}
	if _, err := s.save(dir, false); err == nil {
		s.t.Error("saved into the image that it runs from")
	}
	st, err := os.Stat(filepath.Join(dir, memory.MemoryName))
	s.check(err)
	if st.Mode().Perm() != 0o600 {
		s.t.Errorf("the image's memory is %v after the launch: access was not taken back", st.Mode())
	}
	stream := filepath.Join(s.root, "stream")
	ctx, cancel := context.WithCancel(s.ctx)
	if _, err := s.client.Save(ctx, s.saveArgs(stream), nil, func(shim.Progress) { cancel() }); !errors.Is(err, context.Canceled) {
		s.t.Errorf("cancelled save: %v", err)
	}
	s.noImage(stream)
	s.goesOn()
	_, err = s.save(stream, false)
	s.check(err)
	s.client.Close()
	s.gone(shim.ReasonSaved)

	img, err := memory.Open(stream)
	s.check(err)
	layout := img.Manifest().Layout
	img.Close()
	if layout != memory.LayoutStream {
		s.t.Errorf("layout %s", layout)
	}
	s.again(s.restorePlan(q, stream, false))
	s.console(0).verify()
}

func TestSaveKeepRunning(t *testing.T) {
	t.Parallel()
	forEachQEMU(t, func(t *testing.T, q qemu) {
		s := newScene(t)
		s.launch(s.plan(q))
		s.console(1 << 20).expect("filled 8")
		// Twice: the first leaves QEMU as if it had migrated away.
		for _, name := range []string{"one", "two"} {
			committed, err := s.save(filepath.Join(s.root, name), true)
			s.check(err)
			if committed.Exit != nil || committed.Stopped <= 0 {
				t.Errorf("committed: %+v", committed)
			}
			s.goesOn()
		}
	})
}

func TestSavePausedGuest(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	q := anyQEMU(t)
	s.launch(s.plan(q))
	s.console(1 << 20).expect("filled 8")
	s.monitor("stop")
	dir := filepath.Join(s.root, "image")
	committed, err := s.save(dir, true)
	s.check(err)
	if committed.Stopped != 0 {
		t.Errorf("a paused guest stood still for %v", committed.Stopped)
	}
	if got := string(s.monitor("query-status")); !strings.Contains(got, `"running": false`) {
		t.Errorf("it was paused, and is %s", got)
	}
	_, err = s.client.Kill(s.ctx)
	s.check(err)
	s.client.Close()
	s.gone(shim.ReasonKilled)
	s.again(s.restorePlan(q, dir, false))
	s.goesOn()
}

func TestRestorePaused(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	q := anyQEMU(t)
	s.launch(s.plan(q))
	dir := filepath.Join(s.root, "image")
	_, err := s.save(dir, false)
	s.check(err)
	s.client.Close()
	s.gone(shim.ReasonSaved)
	p := s.restorePlan(q, dir, false)
	p.Paused = true
	s.again(p)
	if got := string(s.monitor("query-status")); !strings.Contains(got, `"running": false`) {
		t.Errorf("restored paused, and it is %s", got)
	}
}

// After each of these the guest goes on and nothing is left.
func TestSaveFails(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.launch(s.plan(anyQEMU(t)))
	s.console(1 << 20).expect("filled 8")
	full := filepath.Join(s.root, "full")
	s.check(os.Mkdir(full, 0o700))
	s.check(os.WriteFile(filepath.Join(full, "precious"), nil, 0o600))
	for _, test := range []struct {
		name, dir string
		code      shim.Code
		texts     []string
	}{
		{"not empty", full, shim.CodePrecondition, []string{full, "precious"}},
		{"no parent", filepath.Join(s.root, "none", "image"), shim.CodePrecondition, []string{"none/image"}},
		{"relative", "image", shim.CodeInvalid, []string{"directory", "absolute"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := s.client.Save(s.ctx, s.saveArgs(test.dir), nil, nil)
			wantCode(t, err, test.code, test.texts...)
			s.goesOn()
		})
	}
	if _, err := os.Stat(filepath.Join(full, "precious")); err != nil {
		t.Error(err)
	}
	_, err := s.client.Commit(s.ctx, shim.Commit{})
	wantCode(t, err, shim.CodePrecondition)
	s.check(s.client.Abort(s.ctx))
	s.goesOn()
}

// smallFilesystem mounts a tmpfs of so many bytes.
func smallFilesystem(t *testing.T, size int) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+itoa(size)); err != nil {
		t.Skipf("can't mount a tmpfs: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

func TestSaveWithoutSpace(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	dir := filepath.Join(smallFilesystem(t, 4<<20), "image")
	s.launch(s.plan(anyQEMU(t)))
	s.console(1 << 20).expect("filled 8")
	_, err := s.client.Save(s.ctx, s.saveArgs(dir), nil, nil)
	wantCode(t, err, shim.CodeSpace, "needed", "available")
	s.noImage(dir)
	s.goesOn()
}

func TestAbortedSave(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.launch(s.plan(anyQEMU(t)))
	s.console(1 << 20).expect("filled 8")
	dir := filepath.Join(s.root, "image")

	prepare := func() {
		t.Helper()
		if _, err := s.client.Save(s.ctx, s.saveArgs(dir), nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("by its agent", func(t *testing.T) {
		prepare()
		s.check(s.client.Abort(s.ctx))
		s.noImage(dir)
		s.goesOn()
		_, err := s.client.Commit(s.ctx, shim.Commit{})
		wantCode(t, err, shim.CodePrecondition)
	})
	t.Run("a second save, a stop and another's commit are refused", func(t *testing.T) {
		prepare()
		_, err := s.client.Save(s.ctx, s.saveArgs(filepath.Join(s.root, "other")), nil, nil)
		wantCode(t, err, shim.CodePrecondition, dir)
		_, err = s.client.Stop(s.ctx, time.Second)
		wantCode(t, err, shim.CodePrecondition)
		other, err := shim.Dial(s.ctx, s.run)
		s.check(err)
		if !other.Welcome().Saving {
			t.Error("welcome does not tell of the save")
		}
		_, err = other.Commit(s.ctx, shim.Commit{})
		wantCode(t, err, shim.CodePrecondition)
		other.Close()
		s.check(s.client.Abort(s.ctx))
		s.goesOn()
	})
	t.Run("by a context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(s.ctx)
		defer cancel()
		_, err := s.client.Save(ctx, s.saveArgs(dir), nil, func(shim.Progress) { cancel() })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		s.noImage(dir)
		s.goesOn()
	})
	t.Run("by the loss of the agent", func(t *testing.T) {
		prepare()
		s.client.Close()
		client, err := shim.Dial(s.ctx, s.run)
		s.check(err)
		s.client = client
		s.goesOn()
		s.waitFor(func() bool { _, err := os.Lstat(dir); return err != nil })
	})
}

func TestVMMDiesWhileSaved(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.launch(s.plan(anyQEMU(t)))
	s.console(1 << 20).expect("filled 8")
	dir := filepath.Join(s.root, "image")
	_, err := s.client.Save(s.ctx, s.saveArgs(dir), nil, nil)
	s.check(err)
	s.check(unix.Kill(s.vmmPID, unix.SIGKILL))
	s.gone(shim.ReasonCrashed)
	s.noImage(dir)
}

func TestKillWhileSaved(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.launch(s.plan(anyQEMU(t)))
	dir := filepath.Join(s.root, "image")
	_, err := s.client.Save(s.ctx, s.saveArgs(dir), nil, nil)
	s.check(err)
	_, err = s.client.Kill(s.ctx)
	s.check(err)
	s.gone(shim.ReasonKilled)
	s.noImage(dir)
}

// What is wrong with an image is said before anything of the guest runs.
func TestRestoreRefuses(t *testing.T) {
	t.Parallel()
	q := anyQEMU(t)
	s := newScene(t)
	s.launch(s.plan(q))
	s.console(1 << 20).expect("filled 8")
	dir := filepath.Join(s.root, "image")
	_, err := s.save(dir, false)
	s.check(err)
	s.client.Close()
	s.gone(shim.ReasonSaved)
	s.newFolders()
	s.startShim()

	flip := func(name string, offset int64) func() {
		return func() {
			f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR, 0)
			s.check(err)
			defer f.Close()
			var b [1]byte
			_, err = f.ReadAt(b[:], offset)
			s.check(err)
			b[0] ^= 1
			_, err = f.WriteAt(b[:], offset)
			s.check(err)
		}
	}
	for _, test := range []struct {
		name   string
		damage func() // and, called again, its repair
		code   shim.Code
		texts  []string
	}{
		{"memory", flip("memory", 17<<20+1000), shim.CodeDamaged, []string{"memory", "chunk 17"}},
		{"state", flip("state", 100), shim.CodeDamaged, []string{"state"}},
		{"manifest", flip("manifest.json", 60), shim.CodeDamaged, []string{"manifest.json"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := s.restorePlan(q, dir, false)
			test.damage()
			_, err := s.client.Launch(s.ctx, shim.Launch{Plan: p}, nil, nil)
			wantCode(t, err, test.code, test.texts...)
			test.damage()
		})
	}
	t.Run("another image", func(t *testing.T) {
		p := s.restorePlan(q, dir, false)
		p.Restore.ImageID = "other"
		_, err := s.client.Launch(s.ctx, shim.Launch{Plan: p}, nil, nil)
		wantCode(t, err, shim.CodePrecondition, "replaced")
	})
	t.Run("other size", func(t *testing.T) {
		p := s.restorePlan(q, dir, false)
		p.Memory.Size *= 2
		_, err := s.client.Launch(s.ctx, shim.Launch{Plan: p}, nil, nil)
		wantCode(t, err, shim.CodeInvalid, "memory.size")
	})
	_, err = s.client.Launch(s.ctx, shim.Launch{Plan: s.restorePlan(q, dir, false)}, nil, nil)
	s.check(err)
	s.console(0).verify()
}

// Damage that a lazy restore finds late stops the guest.
func TestLazyDamage(t *testing.T) {
	t.Parallel()
	q := lazyQEMU(t)
	s := newScene(t)
	s.launch(s.plan(q))
	s.console(1 << 20).expect("filled 8")
	dir := filepath.Join(s.root, "image")
	_, err := s.save(dir, false)
	s.check(err)
	s.client.Close()
	s.gone(shim.ReasonSaved)
	f, err := os.OpenFile(filepath.Join(dir, memory.MemoryName), os.O_RDWR, 0)
	s.check(err)
	_, err = f.WriteAt([]byte("damage"), 60<<20) // where the guest has nothing
	s.check(err)
	s.check(f.Close())

	s.again(s.restorePlan(q, dir, true))
	select {
	case event := <-s.client.Events():
		if !strings.Contains(event.Damaged, "chunk 60") {
			t.Errorf("event %+v", event)
		}
	case <-s.ctx.Done():
		t.Fatal("the damage is not noticed")
	}
	if got := string(s.monitor("query-status")); !strings.Contains(got, `"running": false`) {
		t.Errorf("the guest is %s", got)
	}
}

// A disk that was written to since the save is refused.
func TestDiskBelongsToTheImage(t *testing.T) {
	t.Parallel()
	forEachQEMU(t, func(t *testing.T, q qemu) {
		if q.accel == "kvm" {
			t.Skip("the accelerator makes no difference")
		}
		s := newScene(t)
		path := filepath.Join(s.root, "disk")
		s.check(os.WriteFile(path, make([]byte, 1<<20), 0o600)) // not for the VMM's user to open
		withDisk := func(p *plan.Plan, id *disk.Identity) *plan.Plan {
			p.Files = append(p.Files, plan.File{
				Kind: plan.FilePath, Path: path, Field: "disks[0].path", Write: true, Direct: true,
				DiskName: "root", Identity: id,
				Disk: &disk.Expectation{Field: "disks[0].path", Image: disk.Image{Path: path, Format: disk.Raw}},
			})
			p.Args = append(p.Args, "-add-fd", "fd=8,set=1",
				"-blockdev", "driver=file,filename=/dev/fdset/1,node-name=file,cache.direct=on",
				"-blockdev", "driver=raw,file=file,node-name=raw", "-device", "virtio-blk-device,drive=raw")
			return p
		}
		s.launch(withDisk(s.plan(q), nil))
		dir := filepath.Join(s.root, "image")
		_, err := s.save(dir, false)
		s.check(err)
		s.client.Close()
		s.gone(shim.ReasonSaved)
		img, err := memory.Open(dir)
		s.check(err)
		defer img.Close()
		d := img.Manifest().Disks
		if len(d) != 1 || d[0].Name != "root" || d[0].Path != path || d[0].Format != "raw" || d[0].Size != 1<<20 {
			t.Fatalf("disks %+v", d)
		}
		id := &disk.Identity{Device: d[0].Device, Inode: d[0].Inode, Size: int64(d[0].Size), ModTimeNs: d[0].ModTime, HeaderSum: d[0].HeaderSum}

		s.again(withDisk(s.restorePlan(q, dir, false), id))
		s.goesOn()
		_, err = s.client.Kill(s.ctx)
		s.check(err)
		s.client.Close()
		s.gone(shim.ReasonKilled)

		s.check(os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour)))
		s.newFolders()
		s.startShim()
		_, err = s.client.Launch(s.ctx, shim.Launch{Plan: withDisk(s.restorePlan(q, dir, false), id)}, nil, nil)
		wantCode(t, err, shim.CodeChangedDisk, "disks[0].path", path, "modified at", "--allow-changed-disks")
	})
}

// Each QEMU takes the shim's locks over as its own, at each step that it gives its up or
// takes them, and a guest that was held back goes on over unchanged disks alone.
func TestQEMUAndItsLocks(t *testing.T) {
	t.Parallel()
	qemuIO, err := exec.LookPath("qemu-io")
	if err != nil {
		t.Skip(err)
	}
	forEachQEMU(t, func(t *testing.T, q qemu) {
		if q.accel == "kvm" {
			t.Skip("the accelerator makes no difference")
		}
		s := newScene(t)
		path := filepath.Join(s.root, "disk")
		s.check(os.WriteFile(path, make([]byte, 1<<20), 0o600))
		withDisk := func(p *plan.Plan) *plan.Plan {
			p.Files = append(p.Files, plan.File{
				Kind: plan.FilePath, Path: path, Field: "disks[0].path", Write: true, Direct: true, DiskName: "root",
				Disk: &disk.Expectation{Field: "disks[0].path", Image: disk.Image{Path: path, Format: disk.Raw}},
			})
			p.Args = append(p.Args, "-add-fd", "fd=8,set=1",
				"-blockdev", "driver=file,filename=/dev/fdset/1,node-name=file,cache.direct=on",
				"-blockdev", "driver=raw,file=file,node-name=raw", "-device", "virtio-blk-device,drive=raw")
			return p
		}
		locked := func(when string) {
			t.Helper()
			if out, err := exec.CommandContext(s.ctx, qemuIO, "-f", "raw", "-c", "write 0 512", path).CombinedOutput(); err == nil {
				t.Errorf("%s: another QEMU writes to the disk: %s", when, out)
			}
		}
		dir, next := filepath.Join(s.root, "image"), filepath.Join(s.root, "next")
		s.launch(withDisk(s.plan(q)))
		_, err := s.save(dir, false)
		s.check(err)
		s.client.Close()
		s.gone(shim.ReasonSaved)

		other, err := os.OpenFile(path, os.O_RDWR, 0)
		s.check(err)
		s.check(disk.Lock(other, true))
		s.newFolders()
		s.startShim()
		p := withDisk(s.restorePlan(q, dir, false))
		p.Paused = true
		_, err = s.client.Launch(s.ctx, shim.Launch{Plan: p}, nil, nil)
		wantCode(t, err, shim.CodePrecondition, "disks[0].path", path, "another process has it open", "fuser -v")
		s.check(other.Close())

		s.launch(p)
		locked("restored, paused")
		before, err := os.Stat(path)
		s.check(err)
		s.check(os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour)))
		wantCode(t, s.client.Resume(s.ctx), shim.CodeChangedDisk, "disks[0].path", path, "modified at")
		s.check(os.Chtimes(path, time.Time{}, before.ModTime()))
		_, err = s.save(next, true)
		s.check(err)
		locked("saved, still paused")
		s.check(s.client.Resume(s.ctx))
		s.goesOn()
		locked("resumed")
		_, err = s.client.Save(s.ctx, s.saveArgs(filepath.Join(s.root, "third")), nil, nil)
		s.check(err)
		locked("saved, and not committed")
		s.check(s.client.Abort(s.ctx))
		s.goesOn()
		locked("gone on")
		_, err = s.client.Kill(s.ctx)
		s.check(err)
		s.client.Close()
		s.gone(shim.ReasonKilled)
		if out, err := exec.CommandContext(s.ctx, qemuIO, "-f", "raw", "-c", "write 0 512", path).CombinedOutput(); err != nil {
			t.Errorf("the VM has ended: %v: %s", err, out)
		}
	})
}

// maxResident is what a shim at rest may take, in KiB: VmRSS of proc(5), which
// counts the pages of its binary.
const maxResident = 8 << 10

func TestResidentMemory(t *testing.T) {
	t.Parallel()
	q := anyQEMU(t)
	s := newScene(t)
	s.launch(s.plan(q))
	s.console(1 << 20).expect("filled 8")
	s.checkResident("after a launch")
	dir := filepath.Join(s.root, "image")
	_, err := s.save(dir, true)
	s.check(err)
	s.goesOn()
	s.checkResident("after a save")
	_, err = s.client.Kill(s.ctx)
	s.check(err)
	s.client.Close()
	s.gone(shim.ReasonKilled)
	s.again(s.restorePlan(q, dir, false))
	s.goesOn()
	s.checkResident("after a restore")
}

// checkResident waits until the shim is at rest: it gives memory back beside what it answers.
func (s *scene) checkResident(when string) {
	s.t.Helper()
	ctx, cancel := suites.Wait(s.ctx, s.t, 10*time.Second)
	defer cancel()
	kib := s.resident()
	for ; kib > maxResident && ctx.Err() == nil; kib = s.resident() {
		time.Sleep(50 * time.Millisecond)
	}
	s.t.Logf("%s: %d KiB resident", when, kib)
	if kib > maxResident {
		s.t.Errorf("%s: %d KiB resident, more than %d", when, kib, maxResident)
	}
}
