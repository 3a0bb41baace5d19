package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/test/guest"
	"google.golang.org/protobuf/types/known/durationpb"
)

// life goes through what a VM is asked to do.
func (s *suite) life() {
	v := s.boot(s.spec("life", guest.PVHOptions{}))
	status := v.get().GetStatus()
	if got := status.GetHypervisor(); got != s.hypervisor {
		s.t.Errorf("it runs under %q", got)
	}
	if got := status.GetVmm().GetName(); got != s.vmm {
		s.t.Errorf("it runs with %q", got)
	}
	v.expect(guest.UpLine)
	v.countsOn()
	s.pauseAndResume(v)
	s.bothWays(v)
	s.reset(v)
	v.shimIsSmall()
	process := handle(s.t, v.get().GetStatus().GetProcess().GetVmmPid())
	v.shutDown()
	v.expect(guest.PowerLine)
	process.gone()

	v.must(v.start(true)) // again, and not running yet
	v.is(paused)
	v.resume()
	v.expect(guest.UpLine)
	v.count()
	v.kill()
	v.delete()
}

// guestEnds has a guest reset itself, which its VM survives, and power off.
func (s *suite) guestEnds() {
	v := s.boots("by-itself", guest.PVHOptions{})
	s.afresh(v, func() { v.typeIn(string(guest.KeyReset)) })
	from := v.now()
	process := handle(s.t, v.get().GetStatus().GetProcess().GetVmmPid())
	v.typeIn(string(guest.KeyPowerOff))
	says(s.t, v.becomes(from, stopped), "shut down")
	process.gone()
	v.hangUp()
}

// stubborn is a guest that ignores its power button: it is killed when its grace
// period is over, also one that stands still.
func (s *suite) stubborn() {
	spec := s.spec("stubborn", guest.PVHOptions{IgnorePowerButton: true})
	spec.StopGracePeriod = durationpb.New(2 * time.Second) // in which it says that it was asked
	v := s.boot(spec)
	v.count()
	s.outlasts(v)
	v.expect(guest.PowerLine)
	v.must(v.start(true))
	s.outlasts(v)
}

// outlasts stops a VM that doesn't end within its grace period.
func (s *suite) outlasts(v *vm) {
	s.t.Helper()
	from := v.now()
	r, err := s.api.StopVM(s.ctx, &nodev1.StopVMRequest{Name: v.name})
	v.must(err)
	if !r.GetKilled() {
		s.t.Error("killed is not set")
	}
	says(s.t, v.becomes(from, stopped), "grace period")
}

// pauseAndResume sees that nothing is printed while the VM is paused. A save
// meanwhile takes as long as some counts do.
func (s *suite) pauseAndResume(v *vm) {
	s.t.Helper()
	v.pause()
	before := s.consoleLog(v.name)
	v.save(filepath.Join(s.t.TempDir(), "paused"), true)
	v.is(paused)
	if after := s.consoleLog(v.name); after != before {
		s.t.Errorf("a paused guest printed %q", strings.TrimPrefix(after, before))
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
	stream, err := n.api.ReadLogs(n.ctx, &nodev1.ReadLogsRequest{Name: name})
	var log strings.Builder
	for err == nil {
		var m *nodev1.ReadLogsResponse
		if m, err = stream.Recv(); err == nil {
			log.Write(m.GetData())
		}
	}
	return log.String()
}

// bothWays types on the attached console and reads the answer from it.
func (s *suite) bothWays(v *vm) {
	s.t.Helper()
	v.attach()
	v.typeIn("x")
	v.expect("echo x")
	ctx, cancel := s.patient()
	defer cancel()
	var shown []byte
	read := 0
	for !strings.Contains(string(shown), "echo x") {
		at, err := v.screen.shown.next(ctx, read, func(byte) bool { return true })
		if err != nil {
			s.t.Fatalf("the attached console did not show the echo, but %q", shown)
		}
		read, shown = at, v.screen.shown.all()[:at]
	}
}

// reset is a reset that somebody asks for.
func (s *suite) reset(v *vm) {
	s.t.Helper()
	s.afresh(v, func() {
		_, err := s.api.ResetVM(s.ctx, &nodev1.ResetVMRequest{Name: v.name})
		v.must(err)
	})
}

// afresh sees that a guest begins anew, and that its VM runs on.
func (s *suite) afresh(v *vm, begin func()) {
	s.t.Helper()
	from := v.now()
	begin()
	v.expect(guest.UpLine)
	if first := v.count(); first != 0 {
		s.t.Errorf("after a reset the guest counts from %d", first)
	}
	s.event(from, s.words.reset, func(e *nodev1.Event) bool { return e.GetVm() == v.name && e.GetType() == s.words.reset })
	for _, e := range s.events.all()[from:] {
		if e.GetVm() == v.name && e.GetType() == "state" {
			s.t.Errorf("a reset changed the state: %v", e)
		}
	}
	v.is(running)
}
