package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/internal/inotify"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/internal/rundir"
	"github.com/vmlet/vmlet/shim/server/fault"
)

const (
	maxCompanions = 8
	// readyWithin is how long a companion may take to be ready.
	readyWithin = 30 * time.Second
	// leaveWithin is how long a companion may take to end once it is asked to.
	leaveWithin = 5 * time.Second
)

// companion is a process beside the VMM.
type companion struct {
	what   *plan.Companion
	proc   *process
	socket string // its path; empty: it makes none
}

func checkCompanions(all []plan.Companion) error {
	if len(all) > maxCompanions {
		return fault.New(shim.CodeInvalid, "companions", "%d, at most %d", len(all), maxCompanions)
	}
	for i := range all {
		c := &all[i]
		twice := slices.ContainsFunc(all[:i], func(other plan.Companion) bool { return other.Name == c.Name })
		switch {
		case c.Name == "", twice:
			return fault.New(shim.CodeInvalid, c.Field, "companions[%d].name: %q is missing or listed twice", i, c.Name)
		case !filepath.IsAbs(c.Program):
			return fault.New(shim.CodeInvalid, c.Field, "companions[%d].program: %q is not an absolute path", i, c.Program)
		case c.Socket != "" && rundir.CheckName(c.Socket) != nil:
			return fault.New(shim.CodeInvalid, c.Field, "companions[%d].socket: %q is not the name of a file in the run folder", i, c.Socket)
		}
		for _, f := range c.Files {
			if !slices.Contains([]plan.FileKind{plan.FilePath, plan.FileListen, plan.FileReceived, plan.FilePair, plan.FileReady}, f.Kind) {
				return fault.New(shim.CodeInvalid, f.Field, "companions[%d]: a companion has no file of kind %q", i, f.Kind)
			}
		}
	}
	return nil
}

// startCompanion starts a companion with files that o has opened, and returns when it is ready. In
// undo it leaves what ends it.
func startCompanion(ctx context.Context, what *plan.Companion, o *opener, log io.Writer) (*companion, error) {
	as := &plan.Plan{Program: what.Program, Args: what.Args, Env: what.Env, User: o.plan.User}
	watch, err := socketComes(what.Socket, o)
	if err != nil {
		return nil, err
	}
	var comes <-chan struct{}
	if watch != nil {
		defer watch.Close()
		comes = watch.Changes()
	}
	proc, err := startProcess(as, o.files, nil, nil, log)
	o.release() // from here on their other ends see it if it ends
	if err != nil {
		return nil, fault.Invalid(what.Field, err)
	}
	c := &companion{what: what, proc: proc}
	if what.Socket != "" {
		c.socket = o.run.Path(what.Socket)
	}
	o.undo.Push(c.leave)
	ctx, cancel := context.WithTimeoutCause(ctx, readyWithin, fmt.Errorf("%s is not ready after %v", what.Name, readyWithin))
	defer cancel()
	if err := c.awaitReady(ctx, o.ready, comes); err != nil {
		return nil, err
	}
	return c, nil
}

// socketComes returns what tells that a socket may be there, which is in no one's way before and removed
// in undo; nil for none.
func socketComes(name string, o *opener) (*inotify.Set, error) {
	if name == "" {
		return nil, nil
	}
	if err := o.run.Remove(name); err != nil { // of an earlier one
		return nil, err
	}
	o.undo.Push(func() error { return o.run.Remove(name) })
	set, err := inotify.Watch([]inotify.Interest{{Path: o.run.Path(name)}})
	if err != nil && set != nil {
		set.Close()
	}
	return set, err
}

// awaitReady returns when the companion has said that it is ready and has made its socket.
func (c *companion) awaitReady(ctx context.Context, ready *os.File, comes <-chan struct{}) error {
	said := make(chan error, 1)
	if ready == nil {
		said <- nil
	} else {
		go func() {
			_, err := io.ReadFull(ready, make([]byte, 1))
			said <- err
		}()
	}
	for {
		select {
		case <-c.proc.done:
			return c.failure()
		case err := <-said:
			if err != nil {
				return c.notReady(err)
			}
			said = nil
		case <-comes:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if said == nil && c.hasSocket() {
			return nil
		}
	}
}

// notReady is about one that has closed its FileReady without a word, most likely as it has ended.
func (c *companion) notReady(err error) error {
	if c.proc.endsSoon() {
		return c.failure()
	}
	return fault.New(shim.CodeInternal, c.what.Field, "%s has not said that it is ready: %v", c.what.Name, err)
}

func (c *companion) hasSocket() bool {
	if c.socket == "" {
		return true
	}
	var st unix.Stat_t
	return unix.Lstat(c.socket, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK
}

// failure says how it ended. Only after its end.
func (c *companion) failure() error {
	return fault.New(shim.CodeInternal, c.what.Field, "%s: %v", c.what.Name, c.proc.failure())
}

// leave asks it to end, and kills it if it doesn't.
func (c *companion) leave() error {
	if err := c.proc.pidfd.Signal(unix.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end %s, process %d: %w", c.what.Name, c.proc.pid, err)
	}
	timer := time.NewTimer(leaveWithin)
	defer timer.Stop()
	select {
	case <-c.proc.done:
		return nil
	case <-timer.C:
	}
	err := c.proc.kill()
	<-c.proc.done
	return err
}
