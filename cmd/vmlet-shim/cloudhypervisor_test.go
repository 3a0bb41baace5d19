package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/disk"
	"github.com/vmlet/vmlet/internal/posixacl"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/test/chtest"
	"github.com/vmlet/vmlet/test/guest"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/wire"
)

// cloudHypervisor is the program, or, where there is none, the stand-in.
func cloudHypervisor(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("cloud-hypervisor"); err == nil {
		needKVM(t)
		return path
	}
	t.Log("no cloud-hypervisor: this is a stand-in")
	// Made by the first test: where it is up to date it is not linked again.
	path, err := chtest.Build(t.Context(), filepath.Dir(shimBinary))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// newCloudScene is a scene whose VMM, which opens the hypervisor's device itself,
// may do that.
func newCloudScene(t *testing.T) (*scene, string) {
	t.Helper()
	program := cloudHypervisor(t)
	if os.Geteuid() != 0 {
		t.Skip("the VMM is given a user of its own")
	}
	s := newScene(t)
	if _, err := os.Stat("/dev/kvm"); err == nil {
		s.check(posixacl.Grant("/dev/kvm", cloudUser, posixacl.Read|posixacl.Write))
		t.Cleanup(func() { s.check(posixacl.Revoke("/dev/kvm", cloudUser)) })
	}
	return s, program
}

// cloudUser is nobody else's in a test.
const cloudUser = 954321

// cloudPlan boots the PVH guest.
func (s *scene) cloudPlan(program string) *plan.Plan {
	s.t.Helper()
	p := &plan.Plan{
		Name: "test", ID: "00000000-0000-4000-8000-000000000001", VMM: wire.Name, Program: program,
		Memory: plan.Memory{Size: ramSize, Path: s.ram}, Terminal: true,
		User: &plan.User{UID: cloudUser, GID: cloudUser},
		Files: []plan.File{
			{Kind: plan.FileFolder, Path: wire.FolderName},
			{Kind: plan.FileListen, Path: wire.APISocket},
			{Kind: plan.FileEvents},
			{Kind: plan.FileMemory, Field: "memory", Write: true},
			{Kind: plan.FilePath, Path: s.kernel, Field: "boot.kernel", Reopened: true, Named: true},
		},
		Args: []string{"--api-socket", "fd=4", "--event-monitor", "fd=5", "--seccomp", "true"},
	}
	s.instruct(p, func(vm *wire.VM) {
		*vm = wire.VM{Folder: "/proc/self/fd/3", Config: chapi.VMConfig{
			CPUs:     &chapi.CPUs{Boot: 1, Max: 1},
			Memory:   &chapi.Memory{Zones: []chapi.MemoryZone{{ID: "ram0", Size: ramSize, File: "/proc/self/fd/6", Shared: true}}},
			Payload:  &chapi.Payload{Kernel: "/proc/self/fd/7"},
			Serial:   &chapi.Console{Mode: chapi.ConsoleTTY},
			Console:  &chapi.Console{Mode: chapi.ConsoleOff},
			PVPanic:  true,
			Landlock: true, LandlockRules: []chapi.LandlockRule{{Path: "/proc/self/fd/3", Access: "rw"}},
		}}
	})
	return p
}

// instruct changes what the driver is told.
func (s *scene) instruct(p *plan.Plan, change func(*wire.VM)) {
	s.t.Helper()
	var vm wire.VM
	if p.Instructions != nil {
		s.check(json.Unmarshal(p.Instructions, &vm))
	}
	change(&vm)
	instructions, err := json.Marshal(&vm)
	s.check(err)
	p.Instructions = instructions
}

// cloudRestore goes on from an image.
func (s *scene) cloudRestore(p *plan.Plan, dir string, lazy bool) *plan.Plan {
	s.t.Helper()
	img, err := memory.Open(dir)
	s.check(err)
	defer img.Close()
	p.Restore = &plan.Restore{Directory: dir, ImageID: img.Manifest().ID, Lazy: lazy}
	if lazy {
		p.Memory.Path = ""
		p.Files[3].Write, p.Files[3].Granted = false, true
		s.instruct(p, func(vm *wire.VM) { vm.Config.Memory.Zones[0].Shared = false })
	}
	return p
}

func (s *scene) cloudSave(dir string, keep bool) {
	s.t.Helper()
	args := s.saveArgs(dir)
	args.Manifest.VMM.Name = wire.Name
	_, err := s.client.Save(s.ctx, args, nil, nil)
	s.check(err)
	_, err = s.client.Commit(s.ctx, shim.Commit{KeepRunning: keep})
	s.check(err)
}

// ends waits for the shim's end, and sees that the VMM's folder is gone with it.
func (s *scene) ends(reason shim.Reason) {
	s.t.Helper()
	s.client.Close()
	s.gone(reason)
	if _, err := os.Stat(filepath.Join(s.state, shim.VMMFolderName)); err == nil {
		s.t.Errorf("the VMM's folder is left")
	}
}

func TestCloudHypervisorLife(t *testing.T) {
	s, program := newCloudScene(t)
	s.launch(s.cloudPlan(program))
	c := s.console(1 << 20)
	c.expect("filled 8")
	c.count()
	c.verify()
	c.send("r") // the console stays when the guest is reset
	c.expect(guest.UpLine)
	c.count()
	_, err := s.client.Stop(s.ctx, patience)
	s.check(err)
	s.ends(shim.ReasonShutdown)

	s.again(s.cloudPlan(program))
	s.goesOn()
	_, err = s.client.Kill(s.ctx)
	s.check(err)
	s.ends(shim.ReasonKilled)
}

func TestCloudHypervisorSaves(t *testing.T) {
	s, program := newCloudScene(t)
	s.launch(s.cloudPlan(program))
	c := s.console(1 << 20)
	c.expect("filled 8")
	before := c.count()
	one, two := filepath.Join(s.root, "one"), filepath.Join(s.root, "two")
	s.cloudSave(one, true)
	s.goesOn()
	s.cloudSave(two, false)
	s.ends(shim.ReasonSaved)

	for _, lazy := range []bool{false, true} {
		s.again(s.cloudRestore(s.cloudPlan(program), two, lazy))
		c = s.console(0)
		if after := c.count(); after < before {
			t.Errorf("it counted %d before and %d after", before, after)
		}
		c.verify()
		if lazy {
			break
		}
		_, err := s.client.Kill(s.ctx)
		s.check(err)
		s.ends(shim.ReasonKilled)
	}
	stream := filepath.Join(s.root, "stream")
	s.cloudSave(stream, false)
	s.ends(shim.ReasonSaved)
	s.again(s.cloudRestore(s.cloudPlan(program), stream, false))
	s.console(0).verify()
}

// TestCloudHypervisorQCOW2 has a disk whose tables the VMM keeps in memory.
func TestCloudHypervisorQCOW2(t *testing.T) {
	image, err := exec.LookPath("qemu-img")
	if err != nil {
		t.Skip(err)
	}
	s, program := newCloudScene(t)
	path := filepath.Join(s.root, "disk")
	out, err := exec.Command(image, "create", "-f", "qcow2", path, "1M").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	withDisk := func() *plan.Plan {
		p := s.cloudPlan(program)
		p.Files = append(p.Files, plan.File{
			Kind: plan.FilePath, Path: path, Field: "disks[0].path", Write: true, Direct: true, Granted: true, DiskName: "root",
			Disk: &disk.Expectation{Field: "disks[0].path", Image: disk.Image{Path: path, Format: disk.QCOW2}},
		})
		s.instruct(p, func(vm *wire.VM) {
			vm.Config.Disks = []chapi.Disk{{PCI: chapi.PCI{ID: "disk0"}, Path: "/proc/self/fd/8", Direct: true, Type: chapi.ImageQCOW2}}
		})
		return p
	}
	s.launch(withDisk())
	s.console(1 << 20).expect("filled 8")
	one, two := filepath.Join(s.root, "one"), filepath.Join(s.root, "two")
	for range 20 { // each takes the VM away and brings it back in the same process
		s.cloudSave(one, true)
		s.check(memory.Remove(one))
	}
	s.goesOn()
	s.cloudSave(two, false)
	s.ends(shim.ReasonSaved)
	if n, err := unix.Getxattr(path, "system.posix_acl_access", nil); err == nil && n > 0 {
		t.Error("the VMM's user still has access to the disk")
	}
	p := s.cloudRestore(withDisk(), two, false)
	img, err := memory.Open(two)
	s.check(err)
	d := img.Manifest().Disks[0]
	img.Close()
	p.Files[5].Identity = &disk.Identity{Device: d.Device, Inode: d.Inode, Size: int64(d.Size), ModTimeNs: d.ModTime, HeaderSum: d.HeaderSum}
	s.again(p)
	s.console(0).verify()
}

func TestCloudHypervisorResidentMemory(t *testing.T) {
	s, program := newCloudScene(t)
	s.launch(s.cloudPlan(program))
	s.console(1 << 20).expect("filled 8")
	s.checkResident("after a launch")
	dir := filepath.Join(s.root, "image")
	s.cloudSave(dir, true)
	s.goesOn()
	s.checkResident("after a save")
	_, err := s.client.Kill(s.ctx)
	s.check(err)
	s.ends(shim.ReasonKilled)
	s.again(s.cloudRestore(s.cloudPlan(program), dir, false))
	s.goesOn()
	s.checkResident("after a restore")
}
