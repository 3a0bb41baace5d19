package server

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/disk"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/internal/safeopen"
	"github.com/vmlet/vmlet/test/loopdevice"
	"github.com/vmlet/vmlet/vmm"
)

// deviceScene is a shim, and a block device that has a node of this shim's own.
type deviceScene struct {
	*scene
	device, node string
}

func newDeviceScene(t *testing.T) *deviceScene {
	t.Helper()
	d := &deviceScene{scene: newScene(t, nil), device: loopdevice.New(t, 1<<20)}
	var st unix.Stat_t
	d.check(unix.Stat(d.device, &st))
	d.node = filepath.Join(d.root, "node")
	if err := unix.Mknod(d.node, unix.S_IFBLK|0o600, int(st.Rdev)); err != nil {
		t.Skip(err)
	}
	if f, err := safeopen.File(d.node, false); err != nil {
		t.Skipf("a device node can't be opened here: %v", err)
	} else {
		f.Close()
	}
	return d
}

func (d *deviceScene) file(write bool) plan.File {
	f := plan.File{
		Kind: plan.FilePath, Field: "disks[0].path", Path: d.node, Write: write,
		Disk: &disk.Expectation{Field: "disks[0].path", Image: disk.Image{Path: d.node, Format: disk.Raw}},
	}
	var none *vmm.Image
	none.Watch(&f, "data", 0)
	return f
}

// other opens the device as another VM's shim does, by another node.
func (d *deviceScene) other() error {
	f, err := safeopen.File(d.device, true)
	d.check(err)
	defer f.Close()
	exclusive, err := disk.Exclusively(f)
	if err == nil {
		exclusive.Close()
	}
	return err
}

// TestDeviceHasOneWriter: a VM has a block device that it may write to for itself until it ends, whether
// its VMM inherits it or opens it by itself, and through a save.
func TestDeviceHasOneWriter(t *testing.T) {
	for name, granted := range map[string]bool{"inherited": false, "opened by the VMM": true} {
		t.Run(name, func(t *testing.T) {
			d := newDeviceScene(t)
			wantUsed := func(when string) {
				t.Helper()
				if err := d.other(); !errors.Is(err, disk.ErrInUse) {
					t.Errorf("%s: another writer: %v, want that the device is in use", when, err)
				}
			}
			p := d.plan("well")
			file := d.file(true)
			file.Granted = granted
			p.Files = append(p.Files, file)
			_, err := d.client.Launch(d.ctx, shim.Launch{Plan: p}, nil, nil)
			d.check(err)
			wantUsed("running")
			if names := d.savedDisks(); !slices.Equal(names, []string{"data"}) {
				t.Errorf("an image has the disks %q", names)
			}
			wantUsed("saved and kept running")
			_, err = d.client.Kill(d.ctx)
			d.check(err)
			d.exit()
			if err := d.other(); err != nil {
				t.Errorf("the VM has ended: %v", err)
			}
		})
	}
}

// TestPluggedDeviceHasOneWriter: a disk that comes later is the VM's own until it is detached.
func TestPluggedDeviceHasOneWriter(t *testing.T) {
	for name, byName := range map[string]bool{"handed over": false, "opened by its name": true} {
		t.Run(name, func(t *testing.T) {
			d := newDeviceScene(t)
			d.launch()
			file := d.file(true)
			file.ByName = byName
			attach := shim.Attach{Attachment: &plan.Attachment{Device: "data", Instructions: json.RawMessage(`"data"`), Files: []plan.File{file}}}
			for range 2 {
				d.check(d.client.Attach(d.ctx, attach, nil))
				if err := d.other(); !errors.Is(err, disk.ErrInUse) {
					t.Errorf("attached: another writer: %v, want that the device is in use", err)
				}
				d.check(d.client.Detach(d.ctx, detachment("data", time.Minute)))
				if err := d.other(); err != nil {
					t.Errorf("detached: %v", err)
				}
			}
		})
	}
}

// TestDeviceOfAnother: a disk that another VM writes to is refused by its name, also where it is only to be read.
func TestDeviceOfAnother(t *testing.T) {
	d := newDeviceScene(t)
	another, err := safeopen.File(d.device, true)
	d.check(err)
	defer another.Close()
	writer, err := disk.Exclusively(another)
	d.check(err)
	defer writer.Close()
	launch := func(write bool) error {
		p := d.plan("well")
		p.Files = append(p.Files, d.file(write))
		_, err := d.client.Launch(d.ctx, shim.Launch{Plan: p}, nil, nil)
		return err
	}
	for _, write := range []bool{true, false} {
		err = launch(write)
		wantCode(t, err, shim.CodePrecondition)
		for _, want := range []string{"disks[0].path", "disk data", "block device 7:", "another VM", "lsblk"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("to be written to %v: error %q does not have %q", write, err, want)
			}
		}
	}
	d.check(writer.Close())
	d.check(launch(false))
}

// TestSharedDevice: VMs share a device, and see one that has it for itself.
func TestSharedDevice(t *testing.T) {
	d := newDeviceScene(t)
	shared := d.file(true)
	shared.Shared = true
	launch := func() error {
		p := d.plan("well")
		p.Files = append(p.Files, shared)
		_, err := d.client.Launch(d.ctx, shim.Launch{Plan: p}, nil, nil)
		return err
	}
	another, err := safeopen.File(d.device, true)
	d.check(err)
	defer another.Close()
	alone, err := disk.Exclusively(another)
	d.check(err)
	wantCode(t, launch(), shim.CodePrecondition)
	d.check(alone.Close())
	d.check(launch())
	d.check(disk.CheckFree(another))
}

// TestSharedWithoutDirectIO: what a host caches of a disk that VMs share other hosts don't see.
func TestSharedWithoutDirectIO(t *testing.T) {
	s := newScene(t, nil)
	p := s.plan("well")
	p.Files = append(p.Files, plan.File{Kind: plan.FilePath, Field: "disks[0].path", Path: "/sys/devices/system/cpu/online", Direct: true, Shared: true})
	_, err := s.client.Launch(s.ctx, shim.Launch{Plan: p}, nil, nil)
	wantCode(t, err, shim.CodePrecondition)
	if err != nil && !strings.Contains(err.Error(), "no direct I/O, which a shareable disk needs") {
		t.Errorf("error %q", err)
	}
}

// TestExclusivelyFails: a device is not handed on of which nobody knows whether another writes to it.
func TestExclusivelyFails(t *testing.T) {
	d := newDeviceScene(t)
	f, err := safeopen.File(d.device, true)
	d.check(err)
	f.Close()
	for _, shared := range []bool{false, true} {
		if _, _, err := new(opener).exclusively(&plan.File{Shared: shared}, f); err == nil || errors.Is(err, disk.ErrInUse) {
			t.Errorf("shared %v: %v, want an error, and not that the device is in use", shared, err)
		}
	}
}
