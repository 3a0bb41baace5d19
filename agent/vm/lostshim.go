package vm

import (
	"context"
	"fmt"

	"github.com/vmlet/vmlet/agent/place"
)

// A shim is lost if it runs and does not answer, or if it isn't known whether it runs.
// It is not killed: its guest may be well, and only a person can tell. Nothing that it
// has of the host is touched.

// unseen stands for a shim that may or may not run, as when there was no
// descriptor left to look at it with. Anyone who kills it has it looked for again.
type unseen struct {
	look func() (place.ShimProcess, error)
}

func (*unseen) PID() int      { return 0 }
func (*unseen) Alive() bool   { return true }
func (*unseen) Close() error  { return nil }
func (u *unseen) Kill() error { return u.found(place.ShimProcess.Kill) }

func (u *unseen) Wait(ctx context.Context) error {
	return u.found(func(p place.ShimProcess) error { return p.Wait(ctx) })
}

func (u *unseen) found(do func(place.ShimProcess) error) error {
	p, err := place.RunningShim(u.look())
	if p == nil {
		return err
	}
	defer p.Close()
	return do(p)
}

// plight says what is the matter with a shim that is lost.
func plight(p place.ShimProcess) string {
	if p.PID() == 0 {
		return "whether its shim runs is not known"
	}
	return fmt.Sprintf("its shim, process %d, runs but does not answer", p.PID())
}
