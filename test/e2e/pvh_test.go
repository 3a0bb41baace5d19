package e2e

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	vmletv1 "github.com/vmlet/vmlet/proto/vmlet/v1"
	"github.com/vmlet/vmlet/test/guest"
	"github.com/vmlet/vmlet/vmm/memory"
)

// eachWay runs a test with every QEMU of this machine, and every hypervisor
// that a tiny guest runs under; in short mode with the newest and one.
func eachWay(t *testing.T, test func(t *testing.T, n *node, hypervisor string)) {
	t.Helper()
	t.Parallel()
	all, under := qemusOrSkip(t), hypervisors(t)
	if testing.Short() {
		under = under[len(under)-1:]
	}
	for _, q := range all {
		t.Run("qemu "+q.name, func(t *testing.T) {
			n := newNode(t, nodeOptions{qemu: q})
			for _, h := range under {
				t.Run(h, func(t *testing.T) { test(t, n.in(t), h) })
			}
		})
	}
}

// in lends the node to a subtest, which must not be parallel.
func (n *node) in(t *testing.T) *node {
	outer := n.t
	n.t = t
	t.Cleanup(func() { n.t = outer })
	return n
}

// lazy says whether the node's QEMU can map an image.
func (n *node) lazy() bool {
	n.t.Helper()
	r, err := n.api.GetNode(n.ctx, &vmletv1.GetNodeRequest{})
	n.must(err)
	return slices.ContainsFunc(r.GetVmms(), func(v *vmletv1.Vmm) bool { return v.GetLazyRestore() })
}

func TestLife(t *testing.T) {
	eachWay(t, func(t *testing.T, n *node, hypervisor string) {
		v := n.boot(pvh(t, "life-"+hypervisor, hypervisor, guest.PVHOptions{}))
		if got := v.get().GetStatus().GetHypervisor(); got != hypervisor {
			t.Errorf("it runs under %q", got)
		}
		v.expect(guest.UpLine)
		v.countsOn()
		n.pauseAndResume(v)
		n.bothWays(v)
		n.reset(v)
		v.shimIsSmall()
		process := handle(t, v.get().GetStatus().GetProcess().GetVmmPid())
		v.hangUp()
		r, err := n.api.StopVM(n.ctx, &vmletv1.StopVMRequest{Name: v.name})
		v.must(err)
		if r.GetKilled() {
			t.Error("the guest was killed, want it to shut down")
		}
		v.expect(guest.PowerLine)
		v.is(stopped)
		process.gone()

		v.must(v.start(false)) // again
		v.expect(guest.UpLine)
		v.count()
		v.kill()
		v.delete()
	})
}

// pauseAndResume sees that nothing is printed while the VM is paused. A save
// meanwhile takes as long as some counts do.
func (n *node) pauseAndResume(v *vm) {
	n.t.Helper()
	v.pause()
	before := n.consoleLog(v.name)
	v.save(filepath.Join(n.t.TempDir(), "paused"), true)
	v.is(paused)
	if after := n.consoleLog(v.name); after != before {
		n.t.Errorf("a paused guest printed %q", strings.TrimPrefix(after, before))
	}
	v.pause() // idempotent
	v.resume()
	v.resume()
	v.countsOn()
}

// shimIsSmall holds the shim to its bound of 8 MiB, after whatever it has done.
func (v *vm) shimIsSmall() {
	v.t.Helper()
	const most = 8 << 10 // kB
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", v.get().GetStatus().GetProcess().GetShimPid()))
	v.must(err)
	var resident int
	_, after, _ := strings.Cut(string(status), "VmRSS:")
	if _, err := fmt.Sscanf(after, "%d kB", &resident); err != nil || resident > most {
		v.t.Errorf("the shim has %d kB resident (%v), want %d at most", resident, err, most)
	}
	v.t.Logf("the shim has %d kB resident", resident)
}

func (n *node) consoleLog(name string) string {
	n.t.Helper()
	stream, err := n.api.ReadLogs(n.ctx, &vmletv1.ReadLogsRequest{Name: name})
	var log strings.Builder
	for err == nil {
		var m *vmletv1.ReadLogsResponse
		if m, err = stream.Recv(); err == nil {
			log.Write(m.GetData())
		}
	}
	return log.String()
}

// bothWays types on the attached console and reads the answer from it.
func (n *node) bothWays(v *vm) {
	n.t.Helper()
	v.attach()
	v.typeIn("x")
	v.expect("echo x")
	ctx, cancel := n.patient()
	defer cancel()
	var shown []byte
	read := 0
	for !strings.Contains(string(shown), "echo x") {
		at, err := v.screen.shown.next(ctx, read, func(byte) bool { return true })
		if err != nil {
			n.t.Fatalf("the attached console did not show the echo, but %q", shown)
		}
		read, shown = at, v.screen.shown.all()[:at]
	}
}

func (n *node) reset(v *vm) {
	n.t.Helper()
	from := v.now()
	_, err := n.api.ResetVM(n.ctx, &vmletv1.ResetVMRequest{Name: v.name})
	v.must(err)
	v.expect(guest.UpLine)
	if first := v.count(); first != 0 {
		n.t.Errorf("after a reset the guest counts from %d", first)
	}
	n.event(from, "RESET", func(e *vmletv1.Event) bool { return e.GetVm() == v.name && e.GetType() == "RESET" })
	for _, e := range v.events.all()[from:] {
		if e.GetVm() == v.name && e.GetType() == "state" {
			n.t.Errorf("a reset changed the state: %v", e)
		}
	}
	v.is(running)
}

func TestGuestThatDoesNotShutDown(t *testing.T) {
	eachWay(t, func(t *testing.T, n *node, hypervisor string) {
		spec := pvh(t, "stubborn-"+hypervisor, hypervisor, guest.PVHOptions{IgnorePowerButton: true})
		spec.StopGracePeriod = durationpb.New(time.Second)
		v := n.boot(spec)
		v.count()
		from := v.now()
		r, err := n.api.StopVM(n.ctx, &vmletv1.StopVMRequest{Name: v.name})
		v.must(err)
		if !r.GetKilled() {
			t.Error("killed is not set")
		}
		v.expect(guest.PowerLine)
		v.becomes(from, vmletv1.State_STATE_STOPPED)
		if m := v.get().GetStatus().GetMessage(); !strings.Contains(m, "grace period") {
			t.Errorf("the message is %q, want it to name the grace period", m)
		}
		v.delete()
	})
}

// patternFor is hundreds of MiB that the guest has touched. Of each page it
// checks as much as it can in a second or two: a KVM that emulates each
// instruction is a hundred times slower than QEMU's own emulation.
func patternFor(hypervisor string) guest.Pattern {
	p := guest.Pattern{Address: 16 << 20, MiB: 256, Seed: 0x5eed, Words: 256}
	if hypervisor == "kvm" {
		p.Words = 1
	}
	return p
}

func TestSaveAndRestore(t *testing.T) {
	eachWay(t, func(t *testing.T, n *node, hypervisor string) {
		pattern := patternFor(hypervisor)
		s := &saves{dir: t.TempDir(), pattern: pattern}
		spec := pvh(t, "saves-"+hypervisor, hypervisor, guest.PVHOptions{Memory: pattern})
		spec.Memory.Size = "384Mi"
		s.vm = n.boot(spec)
		s.expect(fmt.Sprintf("filled %d", pattern.MiB))
		s.count()

		s.keepRunning()
		s.startOfSaved()
		s.eager()
		s.paused()
		if n.lazy() {
			s.lazy()
		} else {
			s.lazyRefused()
		}
		s.shimIsSmall()
		s.kill()
		s.delete()
	})
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
	err := s.node.restore(&vmletv1.RestoreVMRequest{Directory: s.image("kept")})
	refused(t, err, codes.FailedPrecondition, s.name, "another name")

	// Without disks the same image may run beside its origin.
	clone := s.name + "-clone"
	s.must(s.node.restore(&vmletv1.RestoreVMRequest{Directory: s.image("kept"), Name: clone, NewIdentity: true}))
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
	s.must(s.node.restore(&vmletv1.RestoreVMRequest{Directory: s.image("eager")}))
	s.wentOn()
	if s.get().GetId() != id {
		s.t.Error("its id has changed")
	}
}

func (s *saves) paused() {
	s.t.Helper()
	s.save(s.image("paused"), false)
	s.must(s.node.restore(&vmletv1.RestoreVMRequest{Directory: s.image("paused"), Paused: true}))
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
	s.must(s.node.restore(&vmletv1.RestoreVMRequest{Directory: dir, Lazy: true}))
	s.wentOn()
	_, err := last(s.api.SaveVM(s.ctx, &vmletv1.SaveVMRequest{Name: s.name, Directory: dir}))
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
	err = s.node.restore(&vmletv1.RestoreVMRequest{Directory: stream, Lazy: true})
	refused(t, err, codes.FailedPrecondition, stream, "eager")
	s.is(saved)
	s.must(s.node.restore(&vmletv1.RestoreVMRequest{Directory: stream}))
	s.wentOn()
}

func (s *saves) lazyRefused() {
	s.t.Helper()
	s.save(s.image("lazy"), false)
	err := s.node.restore(&vmletv1.RestoreVMRequest{Directory: s.image("lazy"), Lazy: true})
	refused(s.t, err, codes.FailedPrecondition, "restore eagerly")
	s.is(saved)
	s.must(s.start(false))
	s.wentOn()
}
