package main

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/disk"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/test/loopdevice"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/wire"
)

// deviceNode makes a node of the scene's own for a block device, as a container has one.
func (s *scene) deviceNode(device string) string {
	s.t.Helper()
	var st unix.Stat_t
	s.check(unix.Stat(device, &st))
	node := filepath.Join(s.root, "node")
	if err := unix.Mknod(node, unix.S_IFBLK|0o600, int(st.Rdev)); err != nil {
		s.t.Skip(err)
	}
	if fd, err := unix.Open(node, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		s.t.Skipf("a device node can't be opened here: %v", err)
	} else {
		unix.Close(fd)
	}
	return node
}

func deviceFile(node string) plan.File {
	return plan.File{
		Kind: plan.FilePath, Path: node, Field: "disks[0].path", Write: true, Direct: true, DiskName: "data",
		Disk: &disk.Expectation{Field: "disks[0].path", Image: disk.Image{Path: node, Format: disk.Raw}},
	}
}

// testOneWriter has two VMs with a node each of one block device: the second is refused while the first runs,
// also once that was saved and goes on, and starts when it has ended. Restored, it has the device again.
func testOneWriter(first, second *scene, withDevice func(s *scene, p *plan.Plan) *plan.Plan, boot func(*scene) *plan.Plan, save func(dir string, keep bool), restore func(dir string) *plan.Plan) {
	first.t.Helper()
	refused := func(when string) {
		first.t.Helper()
		second.newFolders()
		second.startShim()
		_, err := second.client.Launch(second.ctx, shim.Launch{Plan: withDevice(second, boot(second))}, nil, nil)
		if err == nil {
			first.t.Fatalf("%s: a second VM writes to the device", when)
		}
		wantCode(first.t, err, shim.CodePrecondition, "disks[0].path", "disk data", "block device 7:", "another VM")
		second.client.Close()
	}
	first.launch(withDevice(first, boot(first)))
	refused("running")
	save(filepath.Join(first.root, "one"), true)
	first.goesOn()
	refused("saved and kept running")
	dir := filepath.Join(first.root, "two")
	save(dir, false)
	first.client.Close()
	first.gone(shim.ReasonSaved)

	second.again(withDevice(second, boot(second)))
	_, err := second.client.Kill(second.ctx)
	second.check(err)
	second.client.Close()
	second.gone(shim.ReasonKilled)

	first.again(withDevice(first, restore(dir)))
	refused("restored")
	first.goesOn()
	refused("gone on")
}

func TestDeviceHasOneWriterUnderQEMU(t *testing.T) {
	t.Parallel()
	forEachQEMU(t, func(t *testing.T, q qemu) {
		if q.accel == "kvm" {
			t.Skip("the accelerator makes no difference")
		}
		device := loopdevice.New(t, 1<<20)
		first, second := newScene(t), newScene(t)
		nodes := map[*scene]string{first: first.deviceNode(device), second: second.deviceNode(device)}
		withDevice := func(s *scene, p *plan.Plan) *plan.Plan {
			p.Files = append(p.Files, deviceFile(nodes[s]))
			p.Args = append(p.Args, "-add-fd", "fd=8,set=1",
				"-blockdev", "driver=host_device,filename=/dev/fdset/1,node-name=file,cache.direct=on",
				"-blockdev", "driver=raw,file=file,node-name=raw", "-device", "virtio-blk-device,drive=raw")
			return p
		}
		testOneWriter(first, second, withDevice, func(s *scene) *plan.Plan { return s.plan(q) },
			func(dir string, keep bool) {
				_, err := first.save(dir, keep)
				first.check(err)
			},
			func(dir string) *plan.Plan { return first.restorePlan(q, dir, false) })
	})
}

// TestDeviceHasOneWriterUnderCloudHypervisor: it opens the device by itself, and the shim keeps others off it.
func TestDeviceHasOneWriterUnderCloudHypervisor(t *testing.T) {
	first, program := newCloudScene(t)
	second := newScene(t)
	device := loopdevice.New(t, 1<<20)
	nodes := map[*scene]string{first: first.deviceNode(device), second: second.deviceNode(device)}
	withDevice := func(s *scene, p *plan.Plan) *plan.Plan {
		f := deviceFile(nodes[s])
		f.Granted = true
		p.Files = append(p.Files, f)
		s.instruct(p, func(vm *wire.VM) {
			vm.Config.Disks = []chapi.Disk{{PCI: chapi.PCI{ID: "disk0"}, Path: "/proc/self/fd/8", Direct: true, Type: chapi.ImageRaw}}
		})
		return p
	}
	testOneWriter(first, second, withDevice, func(s *scene) *plan.Plan { return s.cloudPlan(program) }, first.cloudSave,
		func(dir string) *plan.Plan { return first.cloudRestore(first.cloudPlan(program), dir, false) })
}

// TestDiskIsSharedUnderQEMU: two QEMUs have one shareable disk, a block device or a file, and no third one has the file
// for itself.
func TestDiskIsSharedUnderQEMU(t *testing.T) {
	t.Parallel()
	forEachQEMU(t, func(t *testing.T, q qemu) {
		if q.accel == "kvm" {
			t.Skip("the accelerator makes no difference")
		}
		t.Run("block device", func(t *testing.T) {
			device, first, second := loopdevice.New(t, 1<<20), newScene(t), newScene(t)
			for _, s := range []*scene{first, second} {
				s.check(s.withDisk(q, s.deviceNode(device), "host_device", true))
			}
			first.goesOn()
			second.goesOn()
		})
		t.Run("file", func(t *testing.T) {
			first, second, third := newScene(t), newScene(t), newScene(t)
			path := filepath.Join(first.root, "disk")
			first.check(os.WriteFile(path, make([]byte, 1<<20), 0o600))
			first.check(first.withDisk(q, path, "file", true))
			second.check(second.withDisk(q, path, "file", true))
			if err := third.withDisk(q, path, "file", false); err == nil {
				t.Error("a third VM has the disk for itself")
			}
			first.goesOn()
			second.goesOn()
		})
	})
}

// withDisk launches a QEMU with a disk, which it shares with others or not.
func (s *scene) withDisk(q qemu, path, driver string, shared bool) error {
	s.t.Helper()
	s.startShim()
	f, shares := deviceFile(path), "off"
	if f.Shared = shared; shared {
		shares = "on"
	}
	p := s.plan(q)
	p.Files = append(p.Files, f)
	p.Args = append(p.Args, "-add-fd", "fd=8,set=1",
		"-blockdev", "driver="+driver+",filename=/dev/fdset/1,node-name=file,cache.direct=on",
		"-blockdev", "driver=raw,file=file,node-name=raw", "-device", "virtio-blk-device,drive=raw,share-rw="+shares)
	_, err := s.client.Launch(s.ctx, shim.Launch{Plan: p}, nil, nil)
	return err
}
