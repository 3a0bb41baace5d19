package e2e

import (
	"context"
	"testing"
	"time"

	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/test/guest"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

// alone boots a VM on a node of its own.
func alone(t *testing.T) (*suite, *vm) {
	t.Helper()
	t.Parallel()
	if testing.Short() {
		t.Skip("not in short mode")
	}
	g := emulated(t)
	s := &suite{newNode(t, g.options), g}
	return s, s.boots("still", guest.PVHOptions{})
}

// killedStill stops a process that a kill of the VM is to end, and starts the VM again.
func (v *vm) killedStill(p process) {
	v.t.Helper()
	p.freeze()
	v.kill()
	p.gone()
	v.must(v.start(false))
	v.expect(guest.UpLine)
	v.count()
}

// TestShimStandsStill stops a shim's process: nobody waits longer than he wants to, what
// was asked for happens when it goes on, and the VM can be killed.
func TestShimStandsStill(t *testing.T) {
	s, v := alone(t)
	shim := func() process { return handle(t, v.get().GetStatus().GetProcess().GetShimPid()) }

	shim().freeze()
	v.is(running)
	impatient, cancel := context.WithTimeout(s.ctx, time.Second)
	defer cancel()
	_, err := last(s.api.SaveVM(impatient, &nodev1.SaveVMRequest{Name: v.name, Directory: s.image()}))
	refused(t, err, codes.DeadlineExceeded)
	from := v.now()
	shim().signal(unix.SIGCONT)
	v.becomes(from, running) // the save was given up
	v.countsOn()

	v.killedStill(shim())
}

// TestAgentStandsStill stops the agent's process: the guest goes on meanwhile, and so does
// the agent afterwards.
func TestAgentStandsStill(t *testing.T) {
	s, v := alone(t)
	handle(t, int64(s.cmd.Process.Pid)).freeze()
	impatient, cancel := context.WithTimeout(s.ctx, time.Second)
	defer cancel()
	_, err := s.api.GetVM(impatient, &nodev1.GetVMRequest{Name: v.name})
	refused(t, err, codes.DeadlineExceeded)
	s.must(s.cmd.Process.Signal(unix.SIGCONT))
	v.countsOn()
	v.save(s.image(), false)
	v.must(v.start(false))
	v.countsOn()
}
