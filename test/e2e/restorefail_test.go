package e2e

import (
	"context"
	"strings"
	"testing"

	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	vmmshim "github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/test/guest"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

// restoresInterrupted loses someone in the middle of a restore: the VM stays saved,
// its image whole, and it can be restored after all.
func (s *suite) restoresInterrupted() {
	v := s.bootLarge("half-restored")
	image := s.image()
	v.save(image, false)
	for _, test := range []struct {
		name string
		run  func(s *suite, v *vm, image string)
	}{
		{"caller gone", (*suite).restoreWithoutCaller},
		{"shim killed", (*suite).restoreWithoutShim},
		{"agent killed", (*suite).restoreWithoutAgent},
	} {
		s.t.Run(test.name, func(t *testing.T) {
			s.in(t)
			test.run(s, v, image)
			v.is(saved)
		})
	}
	v.verify(image)
	v.must(v.start(false))
	v.countsOn()
	v.typeIn(string(guest.KeyVerify))
	v.expect("verified [0-9a-f]{8}")
}

// halfRestored begins a restore and stands its shim still while it fills memory.
func (s *suite) halfRestored(v *vm, image string) (shim process, cancel func(), result func() error) {
	s.t.Helper()
	ctx, stop := context.WithCancel(s.ctx)
	s.t.Cleanup(stop)
	stream, err := s.api.RestoreVM(ctx, &nodev1.RestoreVMRequest{Directory: image})
	s.must(err)
	for filling := false; !filling; {
		m, err := stream.Recv()
		s.must(err)
		filling = strings.Contains(m.GetProgress().GetStep(), "memory")
	}
	process, err := vmmshim.ReadShimProcess(s.path("run", "vms", v.name)) // the VM's status has it later
	s.must(err)
	shim = handle(s.t, int64(process.PID))
	shim.freeze()
	end := make(chan error, 1)
	go func() {
		_, err := last(stream, nil)
		end <- err
	}()
	return shim, stop, func() error { return <-end }
}

func (s *suite) restoreWithoutCaller(v *vm, image string) {
	from := v.now()
	shim, cancel, result := s.halfRestored(v, image)
	cancel()
	shim.signal(unix.SIGCONT)
	refused(s.t, result(), codes.Canceled)
	shim.gone()
	v.becomes(from, saved) // the caller did not wait for that
}

func (s *suite) restoreWithoutShim(v *vm, image string) {
	shim, _, result := s.halfRestored(v, image)
	shim.signal(unix.SIGKILL)
	if err := result(); err == nil {
		s.t.Error("the restore has no error, and its shim is dead")
	}
}

// restoreWithoutAgent: a VMM that nobody has let run yet ends with its shim, which
// waits for no other agent.
func (s *suite) restoreWithoutAgent(v *vm, image string) {
	shim, _, result := s.halfRestored(v, image)
	s.signal(unix.SIGKILL)
	if err := result(); err == nil {
		s.t.Error("the restore has no error, and its agent is dead")
	}
	shim.signal(unix.SIGCONT)
	shim.gone()
	s.start()
	v.follow()
}
