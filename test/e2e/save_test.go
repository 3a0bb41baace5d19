package e2e

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"

	"google.golang.org/grpc/codes"

	"github.com/vmlet/vmlet/memory"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/test/guest"
)

// savesAndRestores saves and restores one VM in every way.
func (s *suite) savesAndRestores() {
	pattern := s.pattern(256)
	saves := &saves{dir: s.t.TempDir(), pattern: pattern}
	saves.vm = s.boot(s.spec("saves", guest.PVHOptions{Memory: pattern}))
	saves.expect(fmt.Sprintf("filled %d", pattern.MiB))
	saves.count()

	saves.keepRunning()
	saves.startOfSaved()
	saves.eager()
	saves.paused()
	if s.lazy() {
		saves.lazy()
	} else {
		saves.lazyRefused()
	}
	saves.shimIsSmall()
	saves.kill()
	saves.delete()
}

// clones runs several VMs from one image, side by side and beside their origin.
func (s *suite) clones() {
	spec := s.spec("origin", guest.PVHOptions{})
	spec.Disks = []*specv1.Disk{{Path: newDisk(s.t, "qcow2"), Format: "qcow2", ReadOnly: true}}
	v := s.boot(spec)
	v.count()
	image := s.image()
	v.save(image, false)
	ids := make(map[string]string)
	for _, name := range []string{"first", "second"} {
		v.must(s.restore(&nodev1.RestoreVMRequest{Directory: image, Name: name, NewIdentity: true, Lazy: s.lazy()}))
		clone := s.vm(name)
		clone.is(running)
		clone.count()
		id := clone.get().GetId()
		if other, there := ids[id]; there {
			s.t.Errorf("%s and %s have the same id", name, other)
		}
		ids[id] = name
	}
	v.must(v.start(false)) // and the origin beside them
	v.countsOn()
	refused(s.t, s.restore(&nodev1.RestoreVMRequest{Directory: image, Name: "first", NewIdentity: true}), codes.AlreadyExists, "first")
}

// saves are those of one VM, from which it goes on each time.
type saves struct {
	*vm
	dir     string
	pattern guest.Pattern
}

func (s *saves) image(name string) string { return filepath.Join(s.dir, name) }

// wentOn sees that the guest counts on and that its memory is as it was.
func (s *saves) wentOn() {
	s.t.Helper()
	s.is(running)
	s.countsOn()
	s.typeIn(string(guest.KeyVerify))
	s.expect(fmt.Sprintf("verified %08x", s.pattern.Sum()))
}

func (s *saves) keepRunning() {
	t := s.t
	t.Helper()
	from := s.now()
	r := s.save(s.image("kept"), true)
	s.wentOn()
	if least := uint64(s.pattern.MiB) << 20; r.GetMemoryBytes() < least || r.GetStateBytes() == 0 {
		t.Errorf("the image has %d bytes of memory and %d of state, want %d and some", r.GetMemoryBytes(), r.GetStateBytes(), least)
	}
	for _, e := range s.events.all()[from:] {
		if e.GetVm() == s.name && e.GetState() != running && e.GetState() != saving {
			t.Errorf("event while it was saved: %v", e)
		}
	}
	s.comparePattern(s.image("kept"))
	err := s.node.restore(&nodev1.RestoreVMRequest{Directory: s.image("kept")})
	refused(t, err, codes.FailedPrecondition, s.name, "another VM")

	// Without disks the same image may run beside its origin.
	clone := s.name + "-clone"
	s.must(s.node.restore(&nodev1.RestoreVMRequest{Directory: s.image("kept"), Name: clone, NewIdentity: true}))
	c := s.node.vm(clone)
	c.is(running)
	c.count()
	if c.get().GetId() == s.get().GetId() {
		t.Error("the clone has its origin's id")
	}
	c.kill()
	c.delete()
	s.wentOn()
}

// comparePattern compares an image's memory with what the guest wrote.
func (s *saves) comparePattern(dir string) {
	s.t.Helper()
	f, err := os.Open(filepath.Join(dir, memory.MemoryName))
	s.must(err)
	defer f.Close()
	page := make([]byte, 4*s.pattern.Words)
	for n := range s.pattern.MiB << 20 / memory.PageSize {
		at := int64(s.pattern.Address) + int64(n)*memory.PageSize
		_, err := f.ReadAt(page, at)
		s.must(err)
		for i, want := range s.pattern.Page(n) {
			if got := binary.LittleEndian.Uint32(page[4*i:]); got != want {
				s.t.Fatalf("%s: word %d at %#x is %08x, want %08x", f.Name(), i, at, got, want)
			}
		}
	}
}

// startOfSaved starts a saved VM, which goes on.
func (s *saves) startOfSaved() {
	t := s.t
	t.Helper()
	s.save(s.image("start"), false)
	status := s.is(saved)
	if got := status.GetImage().GetPath(); got != s.image("start") {
		t.Errorf("its image is %q", got)
	}
	s.must(s.start(false))
	s.wentOn()
}

func (s *saves) eager() {
	s.t.Helper()
	id := s.get().GetId()
	s.save(s.image("eager"), false)
	s.must(s.node.restore(&nodev1.RestoreVMRequest{Directory: s.image("eager")}))
	s.wentOn()
	if s.get().GetId() != id {
		s.t.Error("its id has changed")
	}
}

func (s *saves) paused() {
	s.t.Helper()
	s.save(s.image("paused"), false)
	s.must(s.node.restore(&nodev1.RestoreVMRequest{Directory: s.image("paused"), Paused: true}))
	s.is(paused)
	s.resume()
	s.wentOn()
}

// lazy restores an image by mapping it, saves that VM through the VMM's own
// stream, and restores it once more.
func (s *saves) lazy() {
	t := s.t
	t.Helper()
	dir := s.image("lazy")
	s.save(dir, false)
	s.must(s.node.restore(&nodev1.RestoreVMRequest{Directory: dir, Lazy: true}))
	s.wentOn()
	_, err := last(s.api.SaveVM(s.ctx, &nodev1.SaveVMRequest{Name: s.name, Directory: dir}))
	refused(t, err, codes.FailedPrecondition, dir)
	s.wentOn()

	stream := s.image("stream")
	s.save(stream, false)
	s.verify(dir) // what ran from it has left it as it was
	if s.mayUse(filepath.Join(dir, memory.MemoryName)) {
		t.Error("the VM's user may still read the image that it was restored from")
	}
	if got := s.verify(stream).Layout; got != memory.LayoutStream {
		t.Errorf("the layout of a lazily restored VM's image is %q", got)
	}
	err = s.node.restore(&nodev1.RestoreVMRequest{Directory: stream, Lazy: true})
	refused(t, err, codes.FailedPrecondition, stream, "eager")
	s.is(saved)
	s.must(s.node.restore(&nodev1.RestoreVMRequest{Directory: stream}))
	s.wentOn()
}

func (s *saves) lazyRefused() {
	s.t.Helper()
	s.save(s.image("lazy"), false)
	err := s.node.restore(&nodev1.RestoreVMRequest{Directory: s.image("lazy"), Lazy: true})
	refused(s.t, err, codes.FailedPrecondition, "restore eagerly")
	s.is(saved)
	s.must(s.start(false))
	s.wentOn()
}
