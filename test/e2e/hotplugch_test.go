package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/test/guest"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

// plugFolder is one that VMMs' users can get through, as hotplugFolders has to be.
func plugFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "vmlet-disks")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

// plugNode is cloud-hypervisor's, where disks in the folder may be plugged in.
func plugNode(t *testing.T, folder string) *suite {
	t.Helper()
	if !slices.Contains(hypervisors(t), "kvm") {
		t.Skip("cloud-hypervisor has no guests without KVM")
	}
	g := ofCloudHypervisor(t)
	g.options.config += fmt.Sprintf("hotplugFolders: [%s]\n", folder)
	return &suite{newNode(t, g.options), g}
}

func diskIn(t *testing.T, folder, name, format string) string {
	t.Helper()
	path := filepath.Join(folder, name)
	qemuImg(t, "create", "-q", "-f", format, path, "8M")
	return path
}

// TestHotplugCloudHypervisor gives a VM disks and an interface and takes them away, with
// saves, a reset and a killed agent in between.
func TestHotplugCloudHypervisor(t *testing.T) {
	t.Parallel()
	folder := plugFolder(t)
	s := plugNode(t, folder)
	spec := s.spec("web", guest.PVHOptions{})
	spec.Disks = []*specv1.Disk{{Name: "boot", Path: newDisk(t, "raw")}}
	v := s.boot(spec)
	v.count()
	raw, qcow2 := diskIn(t, folder, "raw", "raw"), diskIn(t, folder, "qcow2", "qcow2")

	t.Log("attach")
	for range 2 { // the second time it is there
		name, err := v.attachDisk(&specv1.Disk{Name: "data", Path: qcow2, Format: "qcow2"})
		if v.must(err); name != "data" {
			t.Fatal(name)
		}
	}
	name, err := v.attachDisk(&specv1.Disk{Path: raw, ReadOnly: true})
	if v.must(err); name != "disk2" {
		t.Fatal(name)
	}
	tapped := false
	if _, err := os.Stat("/dev/net/tun"); err == nil {
		tap := &specv1.NetworkInterface{Name: "lan", Backend: &specv1.NetworkInterface_Tap{Tap: &specv1.TapNetwork{}}}
		_, err := v.attachDevice(&nodev1.AttachRequest{Device: &nodev1.AttachRequest_Network{Network: tap}})
		v.must(err)
		tapped = true
	} else {
		t.Log("no interface is attached:", err)
	}
	v.has(raw)
	v.has(qcow2)
	v.slots("boot@0 data@1 disk2@2", tapped)
	v.count()

	t.Log("saved, and goes on in the same process")
	v.save(filepath.Join(t.TempDir(), "kept"), true)
	v.count()
	v.has(qcow2)

	t.Log("a reset, and another agent")
	v.reset()
	v.has(qcow2)
	v.hangUp()
	s.signal(os.Kill)
	s.start()
	v.follow()
	v.count()
	v.slots("boot@0 data@1 disk2@2", tapped)

	t.Log("save and restore")
	image := filepath.Join(t.TempDir(), "image")
	v.save(image, false)
	v.granted(qcow2, false)
	v.must(s.restore(&nodev1.RestoreVMRequest{Directory: image}))
	v.follow()
	v.count()
	v.slots("boot@0 data@1 disk2@2", tapped)
	v.has(qcow2)

	t.Log("detach what came later, and what was there")
	v.must(v.detach("data"))
	v.must(v.detach("boot"))
	v.slots("disk2@2", tapped)
	if tapped {
		v.must(v.detach("lan"))
		v.slots("disk2@2", false)
	}
	v.count()

	t.Log("save and restore what is left, and attach in the place of what went")
	image = filepath.Join(t.TempDir(), "second")
	v.save(image, false)
	v.must(s.restore(&nodev1.RestoreVMRequest{Directory: image}))
	v.follow()
	v.count()
	name, err = v.attachDisk(&specv1.Disk{Path: qcow2, Format: "qcow2", Name: "again"})
	v.must(err)
	v.slots("disk2@2 again@0", false)
	v.granted(qcow2, true)
	v.must(v.detach(name))
	v.hasNot(qcow2)
	v.granted(qcow2, false)

	t.Log("the shim is killed: what it had granted is taken back")
	_, err = v.attachDisk(&specv1.Disk{Path: qcow2, Format: "qcow2", Name: "again"})
	v.must(err)
	v.granted(qcow2, true)
	v.hangUp()
	from := v.now()
	v.must(unix.Kill(int(v.get().GetStatus().GetProcess().GetShimPid()), unix.SIGKILL))
	v.becomes(from, crashed)
	v.granted(qcow2, false)
}

// has sees that the VMM has a file open.
func (v *vm) has(path string) {
	v.t.Helper()
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", v.get().GetStatus().GetProcess().GetVmmPid()))
	v.must(err)
	if !slices.ContainsFunc(fds, func(fd string) bool { target, _ := os.Readlink(fd); return target == path }) {
		v.t.Errorf("the VMM doesn't have %s open", path)
	}
}

// slots wants these disks, as NAME@SLOT, and an interface or none.
func (v *vm) slots(disks string, network bool) {
	v.t.Helper()
	var got []string
	s := v.get().GetStatus().GetEffectiveSpec()
	for _, d := range s.GetDisks() {
		got = append(got, fmt.Sprintf("%s@%d", d.GetName(), d.GetSlot()))
	}
	if strings.Join(got, " ") != disks || (len(s.GetNetworks()) == 1) != network {
		v.t.Errorf("it has the disks %q and %d interfaces, want %q, and one: %t", got, len(s.GetNetworks()), disks, network)
	}
}

// granted wants a file with or without an access list.
func (v *vm) granted(path string, want bool) {
	v.t.Helper()
	n, err := unix.Getxattr(path, "system.posix_acl_access", nil)
	if is := err == nil && n > 0; is != want {
		v.t.Errorf("%s has an access list: %t (%v), want %t", path, is, err, want)
	}
}

// TestHotplugCloudHypervisorRefused leaves a running VM as it was.
func TestHotplugCloudHypervisorRefused(t *testing.T) {
	t.Parallel()
	folder := plugFolder(t)
	s := plugNode(t, folder)
	v := s.boots("web", guest.PVHOptions{KeepDevices: true})
	raw, qcow2, outside := diskIn(t, folder, "raw", "raw"), diskIn(t, folder, "qcow2", "qcow2"), diskIn(t, plugFolder(t), "raw", "raw")
	link := filepath.Join(folder, "link")
	v.must(os.Symlink(outside, link))
	for _, c := range []struct {
		disk  *specv1.Disk
		code  codes.Code
		words []string
	}{
		{&specv1.Disk{Path: filepath.Join(folder, "none")}, codes.InvalidArgument, []string{"disks[0].path", "none"}},
		{&specv1.Disk{Path: qcow2}, codes.InvalidArgument, []string{"disks[0]", "qcow2"}},
		{&specv1.Disk{Path: outside}, codes.InvalidArgument, []string{"disks[0].path", outside, "hotplugFolders", folder}},
		{&specv1.Disk{Path: link}, codes.FailedPrecondition, []string{"hotplugFolders", link}},
		{&specv1.Disk{Path: raw, Bus: "scsi"}, codes.InvalidArgument, []string{"disks[0].bus"}},
		{&specv1.Disk{Path: raw, Slot: new(uint32(64))}, codes.InvalidArgument, []string{"disks[0].slot"}},
	} {
		if _, err := v.attachDisk(c.disk); c.disk.Path != link || err != nil { // links are followed without Landlock
			refused(t, err, c.code, c.words...)
		} else {
			t.Log("no Landlock here")
			v.kill()
			return
		}
	}
	v.granted(outside, false)
	v.hasNot(raw)
	v.slots("", false)

	t.Log("a guest that keeps it")
	name, err := v.attachDisk(&specv1.Disk{Path: raw})
	v.must(err)
	v.pause()
	refused(t, v.detach(name), codes.DeadlineExceeded, "still has it")
	v.resume()
	v.hasDevice(name, true)
	v.save(filepath.Join(t.TempDir(), "image"), true)
	v.count()
	v.has(raw)
	from := v.now()
	v.reset()
	v.event(from, "the disk goes", func(e *nodev1.Event) bool { return e.GetType() == "detached" })
	v.hasDevice(name, false)
	v.hasNot(raw)
	v.granted(raw, false)
	v.count()

	t.Log("a guest that keeps it, and is taken away for a save meanwhile")
	v.pause()
	name, err = v.attachDisk(&specv1.Disk{Path: qcow2, Format: "qcow2"})
	v.must(err)
	refused(t, v.detach(name), codes.DeadlineExceeded, "still has it")
	v.resume()
	v.save(filepath.Join(t.TempDir(), "kept"), true)
	v.count()
	v.has(qcow2)
	v.reset()
	v.hasDevice(name, true) // as if nobody had asked
	v.has(qcow2)
	v.pause()
	refused(t, v.detach(name), codes.DeadlineExceeded, "still has it")
	v.resume()
	image := filepath.Join(t.TempDir(), "ended")
	v.save(image, false)
	v.must(s.restore(&nodev1.RestoreVMRequest{Directory: image}))
	v.follow()
	v.count()
	v.has(qcow2)
	v.pause()
	refused(t, v.detach(name), codes.DeadlineExceeded, "still has it")
	v.resume()
	from = v.now()
	v.reset()
	v.event(from, "the disk goes", func(e *nodev1.Event) bool { return e.GetType() == "detached" })
	v.hasDevice(name, false)
	v.kill()

	t.Log("one that has not run yet")
	v.must(v.start(true))
	_, err = v.attachDisk(&specv1.Disk{Path: raw})
	refused(t, err, codes.FailedPrecondition, "not been booted")
	v.resume()
	_, err = v.attachDisk(&specv1.Disk{Path: raw})
	v.must(err)
	v.kill()
	v.granted(raw, false)
}

// reset resets the guest, and sees that it counts.
func (v *vm) reset() {
	v.t.Helper()
	_, err := v.api.ResetVM(v.ctx, &nodev1.ResetVMRequest{Name: v.name})
	v.must(err)
	v.expect(guest.UpLine)
	v.count()
}
