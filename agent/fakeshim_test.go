package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
)

// fakeShim is a connection to a fakeProc. It refuses what a shim refuses.
type fakeShim struct {
	proc   *fakeProc
	events chan shim.Event
	once   sync.Once
	// duringSave, if set, is called before Save replies.
	imageID string
}

func refuse(message string) error {
	return &shim.Error{Code: shim.CodePrecondition, Message: message}
}

func (c *fakeShim) hangUp() { c.once.Do(func() { close(c.events) }) }

func (c *fakeShim) Welcome() shim.Welcome {
	c.proc.mu.Lock()
	defer c.proc.mu.Unlock()
	w := shim.Welcome{PID: c.proc.pid, Notes: c.proc.notes}
	if c.proc.launched != nil {
		w.VMMPID = c.proc.pid + 1000
	}
	if c.proc.pod != nil {
		c.proc.pod.welcome(&w)
	}
	return w
}

func (c *fakeShim) Describe(ctx context.Context) (*shim.Described, error) {
	if c.proc.pod != nil {
		return c.proc.pod.describe(ctx)
	}
	return nil, refuse("in no pod")
}

func (c *fakeShim) Events() <-chan shim.Event { return c.events }

func (c *fakeShim) Launch(ctx context.Context, l shim.Launch, files []*os.File, progress func(shim.Progress)) (*shim.Launched, error) {
	p := l.Plan
	if err := c.proc.w.step("launch"); err != nil {
		return nil, err
	}
	if c.Welcome().Launching {
		return nil, refuse("a launch is under way")
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	for _, what := range append(granting(p), "memory "+p.Memory.Path) {
		if err := c.proc.w.hold(what); err != nil {
			return nil, err
		}
	}
	c.proc.mu.Lock()
	defer c.proc.mu.Unlock()
	if c.proc.launched != nil {
		return nil, refuse("launched already")
	}
	c.proc.launched, c.proc.paused = p, p.Paused
	if c.proc.pod != nil {
		c.proc.pod.launched = l
	}
	if progress != nil {
		progress(shim.Progress{Step: "vmm"})
	}
	return &shim.Launched{VMMPID: c.proc.pid + 1000}, nil
}

func (c *fakeShim) Save(ctx context.Context, s shim.Save, progress func(shim.Progress)) (*shim.Prepared, error) {
	if err := c.proc.w.step("save"); err != nil {
		return nil, err
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	c.proc.mu.Lock()
	defer c.proc.mu.Unlock()
	if c.proc.launched == nil || c.proc.saving != nil {
		return nil, refuse("nothing to save, or it is being saved")
	}
	c.proc.saving = &s
	c.imageID = uuid.NewString()
	if progress != nil {
		progress(shim.Progress{Step: "memory", Done: 1, Total: 2})
	}
	return &shim.Prepared{ImageID: c.imageID, MemoryBytes: 4096, StateBytes: 5}, nil
}

func (c *fakeShim) Commit(ctx context.Context, o shim.Commit) (*shim.Committed, error) {
	if err := c.proc.w.step("commit"); err != nil {
		return nil, err
	}
	c.proc.mu.Lock()
	s := c.proc.saving
	c.proc.saving = nil
	c.proc.mu.Unlock()
	if s == nil {
		return nil, refuse("nothing is prepared")
	}
	if err := writeImage(s.Directory, s.Manifest, c.imageID); err != nil {
		return nil, err
	}
	if err := c.proc.w.step("after the image"); err != nil {
		c.proc.end(nil) // it was killed
		return nil, err
	}
	done := &shim.Committed{Stopped: 7 * time.Millisecond}
	if !o.KeepRunning {
		done.Exit = &shim.Exit{Reason: shim.ReasonSaved, ImageDirectory: s.Directory, ImageID: c.imageID}
		c.proc.end(done.Exit)
	}
	return done, nil
}

// writeImage writes a real, tiny image.
func writeImage(dir string, m memory.Manifest, id string) (err error) {
	w, err := memory.Create(dir, memory.Options{})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Abort())
		}
	}()
	ram, err := os.CreateTemp("", "ram")
	if err != nil {
		return err
	}
	defer os.Remove(ram.Name())
	defer ram.Close()
	if err := ram.Truncate(int64(m.MemorySize)); err != nil {
		return err
	}
	if _, err := w.CopyMemory(context.Background(), ram, m.MemorySize, nil); err != nil {
		return err
	}
	state, err := w.StateFile()
	if err != nil {
		return err
	}
	if _, err := state.WriteString("state"); err != nil {
		return err
	}
	if err := w.Seal(context.Background()); err != nil {
		return err
	}
	m.ID = id
	return w.Commit(context.Background(), &m)
}

func (c *fakeShim) Abort(context.Context) error {
	c.proc.mu.Lock()
	defer c.proc.mu.Unlock()
	c.proc.saving = nil
	return nil
}

// Attach and Detach keep what a shim does: the note of each device.
func (c *fakeShim) Attach(ctx context.Context, a shim.Attach, files []*os.File) error {
	if err := c.proc.w.step("attach"); err != nil {
		return err
	}
	c.proc.mu.Lock()
	c.proc.attached = append(c.proc.attached, a.Attachment.Device)
	c.proc.taps += len(files)
	c.proc.notes = append(c.proc.notes, a.Note)
	c.proc.mu.Unlock()
	return c.proc.w.step("after attach")
}

func (c *fakeShim) Detach(ctx context.Context, d shim.Detach) error {
	if err := c.proc.w.step("detach"); err != nil {
		return err
	}
	c.proc.mu.Lock()
	c.proc.attached = slices.DeleteFunc(c.proc.attached, func(device string) bool { return device == d.Detachment.Device })
	c.proc.notes = append(c.proc.notes, d.Note)
	c.proc.mu.Unlock()
	return c.proc.w.step("after detach")
}

func (c *fakeShim) Resume(context.Context) error { return c.proc.w.step("shim resume") }

func (c *fakeShim) Stop(_ context.Context, grace time.Duration) (*shim.Exit, error) {
	if err := c.proc.w.step("stop"); err != nil {
		return nil, err
	}
	e := &shim.Exit{Reason: shim.ReasonShutdown}
	c.proc.mu.Lock()
	if grace == 0 || c.proc.paused {
		e = &shim.Exit{Reason: shim.ReasonKilled, Signal: "killed", Code: -1, GraceOver: true}
	}
	c.proc.mu.Unlock()
	c.proc.end(e)
	return e, nil
}

func (c *fakeShim) Kill(context.Context) (*shim.Exit, error) {
	c.proc.mu.Lock()
	launched := c.proc.launched != nil
	c.proc.mu.Unlock()
	if !launched {
		return nil, refuse("nothing runs")
	}
	e := &shim.Exit{Reason: shim.ReasonKilled, Signal: "killed", Code: -1}
	c.proc.end(e)
	return e, nil
}

func (c *fakeShim) Fail(ctx context.Context, reason string) (*shim.Exit, error) {
	c.proc.said(reason)
	return c.Kill(ctx)
}

// said notes what the pod's owner is told.
func (p *fakeProc) said(reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pod != nil && p.alive() {
		p.pod.refusal += reason
	}
}

func (c *fakeShim) Release(_ context.Context, reason string) error {
	if err := c.proc.w.step("release"); err != nil {
		return err
	}
	c.proc.mu.Lock()
	running := c.proc.launched != nil && c.proc.alive()
	c.proc.mu.Unlock()
	if running {
		return refuse("a VMM runs")
	}
	c.proc.said(reason)
	c.proc.end(nil)
	return nil
}

func (c *fakeShim) Console(context.Context, int) (net.Conn, error) {
	near, far := net.Pipe()
	go func() { // echoes
		defer far.Close()
		buf := make([]byte, 64)
		for {
			n, err := far.Read(buf)
			if err != nil {
				return
			}
			if _, err := far.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	return near, nil
}

// Close is what a lost agent does too: a save that isn't committed is given up.
func (c *fakeShim) Close() error {
	c.proc.mu.Lock()
	c.proc.saving = nil
	for i, other := range c.proc.conns {
		if other == c {
			c.proc.conns = append(c.proc.conns[:i:i], c.proc.conns[i+1:]...)
			break
		}
	}
	c.proc.mu.Unlock()
	c.hangUp()
	return nil
}

// granting is what a plan gives the VMM's user of files.
func granting(p *plan.Plan) (held []string) {
	for _, f := range p.Files {
		if f.Granted {
			held = append(held, fmt.Sprint("file ", f.Path, " ", p.User.UID))
		}
	}
	return held
}
