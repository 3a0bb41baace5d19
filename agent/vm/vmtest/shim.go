package vmtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/vmm"
)

// Shim is a connection to a Proc. It refuses what a shim refuses.
type Shim struct {
	proc    *Proc
	Sends   chan shim.Event
	once    sync.Once
	imageID string // of the last save
}

func refuse(message string) error {
	return &shim.Error{Code: shim.CodePrecondition, Message: message}
}

// HangUp ends the connection.
func (c *Shim) HangUp() { c.once.Do(func() { close(c.Sends) }) }

func (c *Shim) Welcome() shim.Welcome {
	c.proc.Mu.Lock()
	defer c.proc.Mu.Unlock()
	w := shim.Welcome{Major: shim.VersionMajor, Minor: shim.VersionMinor, PID: c.proc.PID, Notes: c.proc.Notes}
	if c.proc.Launched != nil {
		w.VMMPID = c.proc.PID + 1000 + c.proc.Renewals
		w.Keep = c.proc.Keep
	}
	if c.proc.Pod != nil {
		c.proc.Pod.welcome(&w)
	}
	return w
}

func (c *Shim) Describe(ctx context.Context, args shim.Describe) (*shim.Described, error) {
	if c.proc.Pod != nil {
		c.proc.Mu.Lock()
		c.proc.Pod.Asked = append(c.proc.Pod.Asked, args)
		c.proc.Mu.Unlock()
		return c.proc.Pod.describe(ctx)
	}
	return nil, refuse("in no pod")
}

// OpenImage says what is in the pod's Attached, if the volume has a folder of the image's name.
func (c *Shim) OpenImage(_ context.Context, volume *os.File) (*shim.Described, error) {
	restore := *c.proc.Pod.Described.Restore
	if _, err := os.Stat(fmt.Sprintf("/proc/self/fd/%d/%s", volume.Fd(), filepath.Base(restore.Directory))); err != nil {
		return nil, refuse(err.Error())
	}
	restore.Manifest = c.proc.Pod.Attached
	return &shim.Described{Restore: &restore}, nil
}

func (c *Shim) Events() <-chan shim.Event { return c.Sends }

func (c *Shim) Launch(ctx context.Context, l shim.Launch, files []*os.File, progress func(shim.Progress)) (*shim.Launched, error) {
	p := l.Plan
	if err := c.proc.W.step("launch"); err != nil {
		return nil, err
	}
	if c.Welcome().Launching {
		return nil, refuse("a launch is under way")
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	for _, what := range append(granting(p), "memory "+p.Memory.Path) {
		if err := c.proc.W.Hold(what); err != nil {
			return nil, err
		}
	}
	c.proc.Mu.Lock()
	defer c.proc.Mu.Unlock()
	if c.proc.Launched != nil {
		return nil, refuse("launched already")
	}
	c.proc.Launched, c.proc.Paused = p, p.Paused
	if c.proc.Pod != nil {
		c.proc.Pod.Launched = l
	}
	if progress != nil {
		progress(shim.Progress{Step: "vmm"})
	}
	return &shim.Launched{VMMPID: c.proc.PID + 1000}, nil
}

// Renew gives the VM another VMM, as the step "renew" lets it.
func (c *Shim) Renew(ctx context.Context, r shim.Renew, _ []*os.File, _ func(shim.Progress)) (*shim.Renewed, error) {
	if err := c.proc.W.step("renew"); err != nil {
		return nil, err
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	c.proc.Mu.Lock()
	defer c.proc.Mu.Unlock()
	if c.proc.Launched == nil {
		return nil, refuse("no VMM was started")
	}
	// The VMM before it says that its guest is stopped, and is gone.
	for _, m := range c.proc.Monitors {
		select {
		case m.Sends <- vmm.Event{Change: vmm.ChangePaused}:
		default:
		}
		m.Close()
	}
	c.proc.Monitors = nil
	c.proc.Launched, c.proc.Renewals, c.proc.Keep = r.Plan, c.proc.Renewals+1, r.Keep
	return &shim.Renewed{VMMPID: c.proc.PID + 1000 + c.proc.Renewals, Stopped: 7 * time.Millisecond}, nil
}

func (c *Shim) Save(ctx context.Context, s shim.Save, volume *os.File, progress func(shim.Progress)) (*shim.Prepared, error) {
	if err := c.proc.W.step("save"); err != nil {
		return nil, err
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	c.proc.Mu.Lock()
	defer c.proc.Mu.Unlock()
	switch {
	case c.proc.Launched == nil || c.proc.Saving != nil:
		return nil, refuse("nothing to save, or it is being saved")
	case s.Attached != (volume != nil):
		return nil, refuse("a volume comes with the request if one is attached, and only then")
	case s.Attached == filepath.IsAbs(s.Directory):
		return nil, refuse("the directory is a path, or a name in the volume that is attached")
	}
	into := s.Directory
	if s.Attached {
		into = fmt.Sprintf("/proc/self/fd/%d/%s", volume.Fd(), s.Directory)
	}
	c.proc.Saving, c.proc.SavingTo = &s, into
	c.imageID = s.Manifest.ID
	if progress != nil {
		progress(shim.Progress{Step: "memory", Done: 1, Total: 2})
	}
	return &shim.Prepared{ImageID: c.imageID, MemoryBytes: 4096, StateBytes: 5, FilesBytes: 7, Paused: c.proc.Paused}, nil
}

func (c *Shim) Commit(ctx context.Context, o shim.Commit) (*shim.Committed, error) {
	if err := c.proc.W.step("commit"); err != nil {
		return nil, err
	}
	c.proc.Mu.Lock()
	s := c.proc.Saving
	c.proc.Saving = nil
	c.proc.Mu.Unlock()
	if s == nil {
		return nil, refuse("nothing is prepared")
	}
	if err := WriteImage(c.proc.SavingTo, s.Manifest, c.imageID); err != nil {
		return nil, err
	}
	if err := c.proc.W.step("after the image"); err != nil {
		c.proc.End(nil) // it was killed
		return nil, err
	}
	done := &shim.Committed{Stopped: 7 * time.Millisecond}
	if !o.KeepRunning {
		done.Exit = &shim.Exit{Reason: shim.ReasonSaved, ImageDirectory: s.Directory, ImageID: c.imageID}
		c.proc.End(done.Exit)
	}
	return done, nil
}

// WriteImage writes a real, tiny image.
func WriteImage(dir string, m memory.Manifest, id string) (err error) {
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

func (c *Shim) Abort(context.Context) error {
	c.proc.Mu.Lock()
	defer c.proc.Mu.Unlock()
	c.proc.Saving = nil
	return nil
}

// Attach and Detach keep what a shim does: the note of each device.
func (c *Shim) Attach(ctx context.Context, a shim.Attach, files []*os.File) error {
	if err := c.proc.W.step("attach"); err != nil {
		return err
	}
	c.proc.Mu.Lock()
	c.proc.Attached = append(c.proc.Attached, a.Attachment.Device)
	c.proc.Taps += len(files)
	c.proc.Notes = append(c.proc.Notes, a.Note)
	c.proc.Mu.Unlock()
	return c.proc.W.step("after attach")
}

func (c *Shim) Detach(ctx context.Context, d shim.Detach) error {
	if err := c.proc.W.step("detach"); err != nil {
		return err
	}
	c.proc.Mu.Lock()
	c.proc.Attached = slices.DeleteFunc(c.proc.Attached, func(device string) bool { return device == d.Detachment.Device })
	c.proc.Notes = append(c.proc.Notes, d.Note)
	c.proc.Mu.Unlock()
	return c.proc.W.step("after detach")
}

func (c *Shim) Resume(context.Context) error { return c.proc.W.step("shim resume") }

func (c *Shim) Stop(_ context.Context, grace time.Duration) (*shim.Exit, error) {
	if err := c.proc.W.step("stop"); err != nil {
		return nil, err
	}
	e := &shim.Exit{Reason: shim.ReasonShutdown}
	c.proc.Mu.Lock()
	if grace == 0 || c.proc.Paused {
		e = &shim.Exit{Reason: shim.ReasonKilled, Signal: "killed", Code: -1, GraceOver: true}
	}
	c.proc.Mu.Unlock()
	c.proc.End(e)
	return e, nil
}

func (c *Shim) Kill(context.Context) (*shim.Exit, error) {
	c.proc.Mu.Lock()
	launched := c.proc.Launched != nil
	c.proc.Mu.Unlock()
	if !launched {
		return nil, refuse("nothing runs")
	}
	e := &shim.Exit{Reason: shim.ReasonKilled, Signal: "killed", Code: -1}
	c.proc.End(e)
	return e, nil
}

func (c *Shim) Fail(ctx context.Context, why contract.Ending) (*shim.Exit, error) {
	c.proc.said(&why)
	return c.Kill(ctx)
}

// said notes what the pod's owner hears.
func (p *Proc) said(why *contract.Ending) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	if p.Pod != nil && p.Alive() && why != nil {
		p.Pod.Ending = *why
		p.Pod.Refusal += why.Sentence()
	}
}

func (c *Shim) Release(_ context.Context, why *contract.Ending) error {
	if err := c.proc.W.step("release"); err != nil {
		return err
	}
	c.proc.Mu.Lock()
	running := c.proc.Launched != nil && c.proc.Alive()
	c.proc.Mu.Unlock()
	if running {
		return refuse("a VMM runs")
	}
	c.proc.said(why)
	c.proc.End(nil)
	return nil
}

// Display answers as the console does.
func (c *Shim) Display(ctx context.Context, _ bool) (net.Conn, error) { return c.Console(ctx, 0) }

// Freeze is noted.
func (c *Shim) Freeze(_ context.Context, timeout time.Duration) error {
	if err := c.proc.W.step("freeze"); err != nil {
		return err
	}
	c.proc.Mu.Lock()
	defer c.proc.Mu.Unlock()
	c.proc.Frozen = timeout
	return nil
}

// Thaw ends it.
func (c *Shim) Thaw(context.Context) error {
	c.proc.Mu.Lock()
	defer c.proc.Mu.Unlock()
	c.proc.Frozen = 0
	return c.proc.W.step("thaw")
}

// Reboot is noted.
func (c *Shim) Reboot(_ context.Context, button bool) error {
	c.proc.Mu.Lock()
	defer c.proc.Mu.Unlock()
	c.proc.Button = button
	return c.proc.W.step("reboot")
}

// Driver connects to the pod's.
func (c *Shim) Driver(_ context.Context, name string, end *os.File) error {
	if c.proc.Pod == nil || c.proc.Pod.Driver == nil {
		return refuse("no drivers")
	}
	conn, err := net.FileConn(end)
	if err != nil {
		return err
	}
	return c.proc.Pod.Driver(name, conn)
}

// Dial is answered by an echo, whose first line is the address.
func (c *Shim) Dial(ctx context.Context, d shim.DialTo) (net.Conn, error) {
	near, err := c.Console(ctx, 0)
	if err == nil {
		_, err = fmt.Fprintf(near, "%s %s\n", d.Network, d.Address)
	}
	return near, err
}

// Backlog is what a guest has printed before anybody reads its console.
const Backlog = "login: "

// Console echoes.
func (c *Shim) Console(_ context.Context, backlog int) (net.Conn, error) {
	near, far := net.Pipe()
	go func() {
		defer far.Close()
		if backlog > 0 { // a pipe has no empty writes
			_, _ = far.Write([]byte(Backlog[:min(backlog, len(Backlog))]))
		}
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
func (c *Shim) Close() error {
	c.proc.Mu.Lock()
	c.proc.Saving = nil
	for i, other := range c.proc.Conns {
		if other == c {
			c.proc.Conns = append(c.proc.Conns[:i:i], c.proc.Conns[i+1:]...)
			break
		}
	}
	c.proc.Mu.Unlock()
	c.HangUp()
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
