package server

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vmlet/vmlet/disk"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/test/faultfs"
	"github.com/vmlet/vmlet/vmm"
)

// diskScene is a shim with a VM that has two disks: root, over a backing file, and data,
// which is only read.
type diskScene struct {
	*scene
	dir string
}

// The files of its disks.
const (
	rootFile = "root.raw"
	baseFile = "base.raw"
	dataFile = "data.raw"
)

func newDiskScene(t *testing.T, dir string) *diskScene {
	t.Helper()
	d := &diskScene{newScene(t, nil), dir}
	for _, name := range []string{rootFile, baseFile, dataFile} {
		d.check(os.WriteFile(d.path(name), make([]byte, 64<<10), 0o600))
	}
	return d
}

func (d *diskScene) path(name string) string { return filepath.Join(d.dir, name) }

// planWith is a plan with the disks; image is what it goes on from, nil if it boots.
func (d *diskScene) planWith(image *vmm.Image) *plan.Plan {
	p := d.plan("well")
	p.Restore = image.Restore()
	for _, f := range []struct {
		field, name, disk string
		layer             int
	}{{"disks[0].backingFiles[0].path", baseFile, "root", 1}, {"disks[0].path", rootFile, "root", 0}, {"disks[1].path", dataFile, "data", 0}} {
		file := plan.File{
			Kind: plan.FilePath, Field: f.field, Path: d.path(f.name), Write: f.name == rootFile,
			Disk: &disk.Expectation{Field: f.field, Image: disk.Image{Path: d.path(f.name), Format: disk.Raw}},
		}
		image.Watch(&file, f.disk, f.layer)
		p.Files = append(p.Files, file)
	}
	return p
}

func (d *diskScene) launchPlan(p *plan.Plan) error {
	_, err := d.client.Launch(d.ctx, shim.Launch{Plan: p}, nil, nil)
	return err
}

// saved boots the VM, saves it and returns its image; a fresh shim is there then.
func (d *diskScene) saved() *vmm.Image {
	d.t.Helper()
	d.check(d.launchPlan(d.planWith(nil)))
	dir := filepath.Join(d.root, "image")
	_, err := d.client.Save(d.ctx, d.saveArgs(dir), nil, nil)
	d.check(err)
	_, err = d.client.Commit(d.ctx, shim.Commit{})
	d.check(err)
	d.again()
	opened, err := memory.Open(dir)
	d.check(err)
	defer opened.Close()
	return &vmm.Image{Directory: dir, Manifest: opened.Manifest()}
}

// again waits for the shim's end, and starts another.
func (d *diskScene) again() {
	d.t.Helper()
	d.client.Close()
	err := <-d.ended
	d.check(err)
	d.ended <- err // for the cleanup
	*d.machine = fakeMachine{}
	d.listen()
	d.serve()
	d.client = d.dial()
}

func (d *diskScene) touch(name string) {
	d.t.Helper()
	d.check(os.Chtimes(d.path(name), time.Time{}, time.Now().Add(time.Hour)))
}

// changes are what others do to a disk, with the field that an error names.
func changes() []struct{ name, field string } {
	return []struct{ name, field string }{
		{rootFile, "disks[0].path"}, {baseFile, "disks[0].backingFiles[0].path"}, {dataFile, "disks[1].path"},
	}
}

func (d *diskScene) wantChanged(err error, field, name string) {
	d.t.Helper()
	wantCode(d.t, err, shim.CodeChangedDisk)
	for _, want := range []string{field, d.path(name), "modified at"} {
		if !strings.Contains(err.Error(), want) {
			d.t.Errorf("error %q doesn't have %q", err, want)
		}
	}
	if d.machine.isRunning() {
		d.t.Error("the guest runs")
	}
}

func TestImageHasEachFileOfADisk(t *testing.T) {
	d := newDiskScene(t, t.TempDir())
	got := d.saved().Manifest.Disks
	var names []string
	for _, of := range got {
		names = append(names, of.Name+" "+filepath.Base(of.Path)+" "+of.Kind)
		for _, backing := range of.Backing {
			names = append(names, of.Name+" over "+filepath.Base(backing.Path)+" "+backing.Kind)
		}
	}
	want := []string{"root root.raw file", "root over base.raw file", "data data.raw file"}
	if slices.Sort(names); !slices.Equal(names, sorted(want)) {
		t.Errorf("%q, want %q", names, want)
	}
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }

func TestRestoreOverChangedDisk(t *testing.T) {
	for _, c := range changes() {
		t.Run(c.name, func(t *testing.T) {
			d := newDiskScene(t, t.TempDir())
			image := d.saved()
			d.touch(c.name)
			d.wantChanged(d.launchPlan(d.planWith(image)), c.field, c.name)
			image.AllowChangedDisks = true
			d.check(d.launchPlan(d.planWith(image)))
		})
		t.Run(c.name+", while RAM is filled", func(t *testing.T) {
			d := newDiskScene(t, t.TempDir())
			image := d.saved()
			d.driver.onConnect(func(context.Context) error { d.touch(c.name); return nil })
			d.wantChanged(d.launchPlan(d.planWith(image)), c.field, c.name)
		})
	}
}

// A guest that was restored paused goes on over its own disks alone, whichever call resumes it.
func TestHeldGuest(t *testing.T) {
	ways := map[string]func(d *diskScene) error{
		"resume": func(d *diskScene) error { return d.client.Resume(d.ctx) },
		"resume by another agent": func(d *diskScene) error {
			d.client.Close()
			d.client = d.dial()
			return d.client.Resume(d.ctx)
		},
		"save": func(d *diskScene) error {
			_, err := d.client.Save(d.ctx, d.saveArgs(filepath.Join(d.root, "next")), nil, nil)
			return err
		},
	}
	for way, do := range ways {
		for _, c := range changes() {
			t.Run(way+", "+c.name, func(t *testing.T) {
				d := newDiskScene(t, t.TempDir())
				p := d.planWith(d.saved())
				p.Paused = true
				d.check(d.launchPlan(p))
				d.touch(c.name)
				d.wantChanged(do(d), c.field, c.name)
				d.wantChanged(do(d), c.field, c.name) // nor when it is tried again
			})
		}
	}
}

func TestHeldGuestIsNotContinuedToShutDown(t *testing.T) {
	d := newDiskScene(t, t.TempDir())
	p := d.planWith(d.saved())
	p.Paused = true
	d.check(d.launchPlan(p))
	d.touch(rootFile)
	continued := false
	d.machine.onContinue(func() error { continued = true; return nil })
	if _, err := d.client.Stop(d.ctx, time.Minute); err != nil { // the fake VMM ends at the button
		t.Fatal(err)
	}
	if continued {
		t.Error("the guest was continued over a changed disk")
	}
}

// Once it runs the guest writes to its disks, and pausing it is nobody's business here.
func TestGuestThatHasRun(t *testing.T) {
	d := newDiskScene(t, t.TempDir())
	p := d.planWith(d.saved())
	p.Paused = true
	d.check(d.launchPlan(p))
	d.check(d.client.Resume(d.ctx))
	if !d.machine.isRunning() {
		t.Fatal("the guest doesn't run")
	}
	d.touch(rootFile)
	d.machine.set(false)
	d.check(d.client.Resume(d.ctx))
	if d.machine.isRunning() {
		t.Error("a guest that somebody else has paused was let go on")
	}
	// A save that fails before it has come to the guest changes nothing of that.
	if _, err := d.client.Save(d.ctx, d.saveArgs("/proc/no/such/folder"), nil, nil); err == nil {
		t.Fatal("saved into /proc")
	}
	d.touch(rootFile)
	if _, err := d.client.Save(d.ctx, d.saveArgs(filepath.Join(d.root, "next")), nil, nil); err != nil {
		t.Errorf("a guest that has run: %v", err)
	}
}

// While a save waits for its commit its guest's disks are others' to write to.
func TestDiskChangesDuringSave(t *testing.T) {
	for name, goOn := range map[string]func(d *diskScene) error{
		"kept running": func(d *diskScene) error {
			_, err := d.client.Commit(d.ctx, shim.Commit{KeepRunning: true})
			return err
		},
		"aborted": func(d *diskScene) error { return d.client.Abort(d.ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDiskScene(t, t.TempDir())
			d.check(d.launchPlan(d.planWith(nil)))
			_, err := d.client.Save(d.ctx, d.saveArgs(filepath.Join(d.root, "image")), nil, nil)
			d.check(err)
			d.touch(rootFile)
			d.wantChanged(goOn(d), "disks[0].path", rootFile)
			d.wantChanged(d.client.Resume(d.ctx), "disks[0].path", rootFile)
		})
	}
}

// A paused guest that was saved and kept stays paused over the disks as they were.
func TestPausedGuestThatWasSaved(t *testing.T) {
	d := newDiskScene(t, t.TempDir())
	p := d.planWith(nil)
	p.Paused = true
	d.check(d.launchPlan(p))
	_, err := d.client.Save(d.ctx, d.saveArgs(filepath.Join(d.root, "image")), nil, nil)
	d.check(err)
	_, err = d.client.Commit(d.ctx, shim.Commit{KeepRunning: true})
	d.check(err)
	d.touch(rootFile)
	d.wantChanged(d.client.Resume(d.ctx), "disks[0].path", rootFile)
}

// others opens a disk as another program, and locks it as QEMU does.
func (d *diskScene) others(name string, write bool) error {
	f, err := os.OpenFile(d.path(name), os.O_RDWR, 0)
	d.check(err)
	if err := disk.Lock(f, write); err != nil {
		f.Close()
		return err
	}
	d.t.Cleanup(func() { f.Close() })
	return nil
}

func TestRestoreOfDiskInUse(t *testing.T) {
	for _, c := range changes() {
		for _, granted := range []bool{false, true} {
			d := newDiskScene(t, t.TempDir())
			image := d.saved()
			p := d.planWith(image)
			for i := range p.Files {
				p.Files[i].Granted = granted && p.Files[i].Kind == plan.FilePath
			}
			if granted && c.name != rootFile {
				continue // a VMM that locks images as a whole lets others read
			}
			d.check(d.others(c.name, true))
			err := d.launchPlan(p)
			wantCode(t, err, shim.CodePrecondition)
			path := d.path(c.name)
			if want := c.field + ": " + path + ": another process has it open, most likely another VM: end that first (fuser -v " + path + " names it)"; err.Error() != want {
				t.Errorf("error %q, want %q", err, want)
			}
		}
	}
}

// From the restore on no other program that heeds locks gets at the disks, until the VM
// has ended.
func TestHeldDisksAreLocked(t *testing.T) {
	d := newDiskScene(t, t.TempDir())
	p := d.planWith(d.saved())
	p.Paused = true
	d.check(d.launchPlan(p))
	for _, c := range changes() {
		if err := d.others(c.name, true); !errors.Is(err, disk.ErrInUse) {
			t.Errorf("another writes to %s: %v, want that it is in use", c.name, err)
		}
	}
	for _, name := range []string{baseFile, dataFile} {
		if err := d.others(name, false); err != nil {
			t.Errorf("another reads %s: %v", name, err)
		}
	}
	_, err := d.client.Kill(d.ctx)
	d.check(err)
	d.exit()
	if err := d.others(rootFile, true); err != nil {
		t.Errorf("when the VM has ended: %v", err)
	}
}

// What the guest has written is durable before there is an image that counts on it.
func TestSaveSyncsDisks(t *testing.T) {
	fsys := faultfs.ForTest(t)
	d := newDiskScene(t, fsys.Path())
	d.check(d.launchPlan(d.planWith(nil)))
	fsys.Arm(faultfs.Fault{Op: faultfs.OpFsync, Name: rootFile, Errno: syscall.EIO})
	dir := filepath.Join(d.root, "image")
	_, err := d.client.Save(d.ctx, d.saveArgs(dir), nil, nil)
	wantCode(t, err, shim.CodeInternal)
	if want := "disks[0].path: " + d.path(rootFile) + ": what the guest has written can't be made durable: "; !strings.Contains(err.Error(), want) {
		t.Errorf("error %q, want %q", err, want)
	}
	if !d.machine.isRunning() {
		t.Error("the guest doesn't go on")
	}
	d.noFile(filepath.Join(dir, memory.ManifestName))
	if hits := fsys.Disarm(); hits != 1 {
		t.Errorf("%d faults hit, want 1", hits)
	}
	// What is only read is not synced.
	fsys.Arm(faultfs.Fault{Op: faultfs.OpFsync, Name: baseFile, Errno: syscall.EIO}, faultfs.Fault{Op: faultfs.OpFsync, Name: dataFile, Errno: syscall.EIO})
	_, err = d.client.Save(d.ctx, d.saveArgs(dir), nil, nil)
	d.check(err)
	if synced := fsys.Counts()[faultfs.OpFsync]; synced == 0 {
		t.Error("the disk was not synced")
	}
	fsys.Disarm()
}

// Nothing shows that a block device is unchanged.
func TestRestoreOverBlockDevice(t *testing.T) {
	d := newDiskScene(t, t.TempDir())
	device := filepath.Join(t.TempDir(), "backing")
	d.check(errors.Join(os.WriteFile(device, nil, 0o600), os.Truncate(device, 1<<20), os.Remove(d.path(rootFile))))
	out, err := exec.CommandContext(t.Context(), "losetup", "--find", "--show", device).CombinedOutput()
	if err != nil {
		t.Skipf("losetup: %v: %s", err, out)
	}
	loop := strings.TrimSpace(string(out))
	t.Cleanup(func() { d.check(exec.Command("losetup", "--detach", loop).Run()) })
	d.check(os.Symlink(loop, d.path(rootFile)))
	image := d.saved()

	err = d.launchPlan(d.planWith(image))
	wantCode(t, err, shim.CodeChangedDisk)
	for _, want := range []string{"disks[0].path", "cannot be shown to be unchanged", "--allow-changed-disks"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q doesn't have %q", err, want)
		}
	}
	f, err := os.OpenFile(loop, os.O_WRONLY, 0)
	d.check(err)
	_, err = f.WriteAt([]byte("another superblock"), 1024)
	d.check(errors.Join(err, f.Close()))
	err = d.launchPlan(d.planWith(image))
	if wantCode(t, err, shim.CodeChangedDisk); !strings.Contains(err.Error(), "has changed since the image was saved (content") {
		t.Errorf("error %q doesn't say that it has changed", err)
	}
	image.AllowChangedDisks = true
	p := d.planWith(image)
	p.Paused = true
	d.check(d.launchPlan(p))
	d.check(d.client.Resume(d.ctx)) // what is held nobody has given away meanwhile
}

// Images of before the new facts are restored by the rule of before.
func TestRestoreOfOlderImage(t *testing.T) {
	d := newDiskScene(t, t.TempDir())
	image := d.saved()
	own := slices.IndexFunc(image.Manifest.Disks, func(i memory.DiskIdentity) bool { return i.Name == "root" })
	i := image.Manifest.Disks[own]
	old := memory.DiskIdentity{Name: i.Name, Path: i.Path, Format: i.Format, Device: i.Device, Inode: i.Inode, Size: i.Size, ModTime: i.ModTime}
	image.Manifest.Disks = []memory.DiskIdentity{old}
	image.Manifest.Disks[0].Device++
	err := d.launchPlan(d.planWith(image))
	if wantCode(t, err, shim.CodeChangedDisk); !strings.Contains(err.Error(), "device number") {
		t.Errorf("error %q doesn't name the device number", err)
	}
	image.Manifest.Disks[0] = old
	d.touch(baseFile) // of which it knows nothing
	d.check(d.launchPlan(d.planWith(image)))
}
