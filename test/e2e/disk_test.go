package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/test/guest"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

func qemuImg(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.Command("qemu-img", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("qemu-img %q: %v: %s (test/setup test installs it)", args, err, out)
	}
}

// newDisk makes an empty disk image of 8 MiB.
func newDisk(t *testing.T, format string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk."+format)
	qemuImg(t, "create", "-q", "-f", format, path, "8M")
	return path
}

// TestDisksBelongToTheState has a guest write to its disks between saves.
func TestDisksBelongToTheState(t *testing.T) {
	t.Parallel()
	qemusOrSkip(t)
	spec := linux(t, "disks")
	raw, qcow2 := newDisk(t, "raw"), newDisk(t, "qcow2")
	spec.Disks = []*specv1.Disk{{Path: raw, Format: "raw"}, {Path: qcow2, Format: "qcow2"}}
	n := newNode(t, nodeOptions{})
	v := n.boot(spec)
	v.expect("count 1 .*")
	for _, disk := range []string{"vda", "vdb"} {
		v.ask("write /dev/"+disk+" first on "+disk, "written .* bytes")
	}
	image := func(name string) string { return filepath.Join(filepath.Dir(raw), name) }

	t.Log("unchanged disks")
	v.save(image("unchanged"), false)
	v.must(n.restore(&nodev1.RestoreVMRequest{Directory: image("unchanged")}))
	v.countsOn()
	for _, disk := range []string{"vda", "vdb"} {
		v.ask("write /dev/"+disk+" second on "+disk, "written .* bytes")
	}

	t.Log("an image that was restored once")
	v.save(image("again"), false)
	err := n.restore(&nodev1.RestoreVMRequest{Directory: image("unchanged")})
	refused(t, err, codes.FailedPrecondition, "disks[0]", raw, "modified", "--allow-changed-disks")
	v.is(saved)
	v.must(v.start(false))
	v.countsOn()

	for _, disk := range []struct{ field, path string }{{"disks[0]", raw}, {"disks[1]", qcow2}} {
		t.Logf("a disk that was touched: %s", disk.field)
		touched := image("touched-" + filepath.Base(disk.path))
		v.save(touched, false)
		v.must(os.Chtimes(disk.path, time.Time{}, time.Now().Add(time.Second)))
		refused(t, n.restore(&nodev1.RestoreVMRequest{Directory: touched}), codes.FailedPrecondition, disk.field, disk.path, "modified")
		refused(t, v.start(false), codes.FailedPrecondition, disk.field, disk.path, "modified")
		v.is(saved)
		v.must(n.restore(&nodev1.RestoreVMRequest{Directory: touched, AllowChangedDisks: true}))
		v.countsOn()
	}

	t.Log("kept running")
	v.save(image("kept"), true)
	v.ask("write /dev/vdb third", "written .* bytes")
	v.kill()
	refused(t, n.restore(&nodev1.RestoreVMRequest{Directory: image("kept")}), codes.FailedPrecondition, "disks[1]", qcow2)
	v.is(stopped)
}

func TestDisksRefused(t *testing.T) {
	n := newNode(t, nodeOptions{})
	dir := t.TempDir()
	base, overlay := newDisk(t, "raw"), filepath.Join(dir, "overlay")
	qemuImg(t, "create", "-q", "-f", "qcow2", "-F", "raw", "-b", base, overlay)
	for name, c := range map[string]struct {
		disk  *specv1.Disk
		words []string
	}{
		"backing-file":   {&specv1.Disk{Path: overlay, Format: "qcow2"}, []string{"disks[0]", overlay, base}},
		"not-raw":        {&specv1.Disk{Path: overlay, Format: "raw"}, []string{"disks[0]", overlay, "qcow2"}},
		"not-qcow2":      {&specv1.Disk{Path: base, Format: "qcow2"}, []string{"disks[0]", base, "qcow2"}},
		"no-such-file":   {&specv1.Disk{Path: filepath.Join(dir, "none"), Format: "raw"}, []string{"disks[0].path", "none"}},
		"other-backing":  {&specv1.Disk{Path: overlay, Format: "qcow2", BackingFiles: []*specv1.BackingFile{{Path: newDisk(t, "raw"), Format: "raw"}}}, []string{"disks[0]", base}},
		"folder-as-disk": {&specv1.Disk{Path: dir, Format: "raw"}, []string{"disks[0].path", dir}},
	} {
		t.Run(name, func(t *testing.T) {
			n := n.in(t)
			spec := pvh(t, name, "emulation", guest.PVHOptions{})
			spec.Disks = []*specv1.Disk{c.disk}
			v := n.create(spec)
			refused(t, v.start(false), codes.InvalidArgument, c.words...)
			v.is(created)
			v.delete()
		})
	}
	for pid, what := range n.processes() {
		if pid != n.cmd.Process.Pid {
			t.Errorf("left of a start that was refused: process %d, %s", pid, what)
		}
	}
}

// TestMemoryStaysWithItsDisks: no way leads to a guest that runs with memory of other
// disks, or beside another VM on the same.
func TestMemoryStaysWithItsDisks(t *testing.T) {
	t.Parallel()
	for _, g := range targets(t) {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			s := &suite{newNode(t, g.options), g}
			s.memoryStaysWithItsDisks()
		})
	}
}

func (s *suite) memoryStaysWithItsDisks() {
	dir := plugFolder(s.t)
	own, base, overlay := diskIn(s.t, dir, "own", "raw"), diskIn(s.t, dir, "base", "raw"), filepath.Join(dir, "overlay")
	qemuImg(s.t, "create", "-q", "-f", "qcow2", "-F", "raw", "-b", base, overlay)
	spec := s.spec("r1", guest.PVHOptions{})
	spec.Disks = []*specv1.Disk{
		{Path: own, Format: "raw"},
		{Path: overlay, Format: "qcow2", ReadOnly: true, BackingFiles: []*specv1.BackingFile{{Path: base, Format: "raw"}}},
	}
	touch := func(path string) { s.must(os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour))) }
	r1 := s.boot(spec)
	r1.count()
	image := s.image()
	r1.save(image, false)
	r1.must(s.restore(&nodev1.RestoreVMRequest{Directory: image}))
	r1.countsOn()

	s.t.Log("another VM, while the first has the disk")
	err := s.restore(&nodev1.RestoreVMRequest{Directory: image, Name: "r2", NewIdentity: true, Paused: true})
	refused(s.t, err, codes.FailedPrecondition, "disks[0].path", own, "vm r2", "vm r1", "writes to it")
	s.t.Log("the same VM under another name")
	err = s.restore(&nodev1.RestoreVMRequest{Directory: image, Name: "r3"})
	refused(s.t, err, codes.FailedPrecondition, "r1", "is running", "--new-identity")
	r1.kill()

	s.t.Log("restored paused, and the agent is killed")
	s.must(s.restore(&nodev1.RestoreVMRequest{Directory: image, Name: "r2", NewIdentity: true, Paused: true}))
	r2 := s.vm("r2")
	r2.is(paused)
	refused(s.t, s.restore(&nodev1.RestoreVMRequest{Directory: image}), codes.FailedPrecondition, "disks[0].path", own, "vm r2", "writes to it")
	s.signal(unix.SIGKILL)
	s.node.start()
	r2.follow()
	r2.is(paused)
	for _, c := range []struct{ path, field string }{{base, "disks[1].backingFiles[0].path"}, {overlay, "disks[1].path"}, {own, "disks[0].path"}} {
		before, err := os.Stat(c.path)
		s.must(err)
		touch(c.path)
		_, err = s.api.ResumeVM(s.ctx, &nodev1.ResumeVMRequest{Name: "r2"})
		refused(s.t, err, codes.FailedPrecondition, "vm r2", c.field, c.path, "has changed")
		_, err = s.api.StopVM(s.ctx, &nodev1.StopVMRequest{Name: "r2"})
		refused(s.t, err, codes.FailedPrecondition, "vm r2", c.field, c.path, "has changed")
		_, err = last(s.api.SaveVM(s.ctx, &nodev1.SaveVMRequest{Name: "r2", Directory: s.image()}))
		refused(s.t, err, codes.FailedPrecondition, "vm r2", c.field, c.path, "has changed")
		r2.is(paused)
		s.must(os.Chtimes(c.path, time.Time{}, before.ModTime()))
	}
	r2.resume()
	r2.count()
	r2.kill()

	s.t.Log("restored over files that were replaced")
	for _, c := range []struct{ path, field string }{{base, "disks[1].backingFiles[0].path"}, {overlay, "disks[1].path"}, {own, "disks[0].path"}} {
		copied := c.path + ".copy"
		out, err := exec.Command("cp", "--preserve=all", c.path, copied).CombinedOutput()
		if err != nil {
			s.t.Fatalf("cp: %v: %s", err, out)
		}
		s.must(os.Rename(c.path, c.path+".kept"))
		s.must(os.Rename(copied, c.path))
		refused(s.t, s.restore(&nodev1.RestoreVMRequest{Directory: image}), codes.FailedPrecondition, c.field, c.path, "inode", "--allow-changed-disks")
		s.must(os.Rename(c.path+".kept", c.path))
	}
	r1.must(s.restore(&nodev1.RestoreVMRequest{Directory: image}))
	r1.is(running)
}
