package shim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/plan"
)

// Launch starts the VMM with the files that the plan's FileReceived count on;
// they stay the caller's. If it fails nothing is left, and it may be tried
// again. When ctx ends first the client tells the shim to give up; the error is nil if
// the VMM was up by then.
func (c *Client) Launch(ctx context.Context, l Launch, files []*os.File, progress func(Progress)) (*Launched, error) {
	if err := c.checkCompanions(l.Plan); err != nil {
		return nil, err
	}
	launched := new(Launched)
	if err := undoable(ctx, c, &call{op: OpLaunch, into: launched}, l, files, progress); err != nil {
		return nil, err
	}
	return launched, nil
}

// companionsMinor is the version of the protocol since which shims know a plan's Companions. An older
// one would start the VMM without.
const companionsMinor = 6

func (c *Client) checkCompanions(p *plan.Plan) error {
	if p == nil || len(p.Companions) == 0 || c.welcome.Minor >= companionsMinor {
		return nil
	}
	first := p.Companions[0]
	return &Error{Code: CodePrecondition, Field: first.Field, Message: fmt.Sprintf(
		"it needs a process beside the VMM, %s, and the VM's shim speaks version %d.%d of the protocol, which has none: start the VM again with vmlet of the agent's version",
		first.Name, c.welcome.Major, c.welcome.Minor)}
}

// Renew has another VMM take the place of the one that runs, with the files that the plan's FileReceived count on; they stay
// the caller's. After an error the guest goes on in the one that ran, unless the VM has ended. When ctx ends first the client
// tells the shim to give up; the error is nil if the other VMM had the guest by then.
func (c *Client) Renew(ctx context.Context, r Renew, files []*os.File, progress func(Progress)) (*Renewed, error) {
	if !c.welcome.Renews {
		return nil, &Error{Code: CodePrecondition, Message: "the VM's shim is from before a VMM could be renewed under its guest: stop the VM and start it"}
	}
	renewed := new(Renewed)
	if err := undoable(ctx, c, &call{op: OpRenew, into: renewed}, r, files, progress); err != nil {
		return nil, err
	}
	return renewed, nil
}

// Save stops the guest and writes its image, whole but for the manifest. Commit
// or Abort has to follow, on this Client. When ctx ends first the save is
// aborted. volume goes with s.Attached: the folder, open for reading or by O_PATH, in
// which the image's is made. It stays the caller's, and is nil without.
func (c *Client) Save(ctx context.Context, s Save, volume *os.File, progress func(Progress)) (*Prepared, error) {
	var files []*os.File
	if s.Attached {
		files = append(files, volume)
	}
	prepared := new(Prepared)
	if err := undoable(ctx, c, &call{op: OpSave, into: prepared}, s, files, progress); err != nil {
		return nil, err
	}
	if ctx.Err() != nil { // it was prepared and then aborted
		return nil, fmt.Errorf("%s: %w", OpSave, context.Cause(ctx))
	}
	return prepared, nil
}

// Commit makes an image of what Save prepared. After an error other than
// *Error it is unknown whether it did: look for the manifest.
func (c *Client) Commit(ctx context.Context, args Commit) (*Committed, error) {
	return ask[Committed](ctx, c, OpCommit, args)
}

// Abort gives up what Launch or Save has under way on this Client, or what Save
// has prepared; then the guest goes on. It returns when that is so.
func (c *Client) Abort(ctx context.Context) error { return c.request(ctx, OpAbort, nil) }

// Resume lets a guest run that has not since its restore or a save, if its disks are as
// they were then: else the error is CodeChangedDisk. One that has run since is left as
// it is, running or not.
func (c *Client) Resume(ctx context.Context) error {
	return c.request(ctx, OpResume, nil)
}

// Stop presses the power button and returns how the VMM ended. It is killed
// when the grace period is over; a second Stop can only shorten it. When ctx
// ends the shim goes on stopping.
func (c *Client) Stop(ctx context.Context, grace time.Duration) (*Exit, error) {
	return ask[Exit](ctx, c, OpStop, Stop{Grace: grace})
}

// Kill ends the VMM at once.
func (c *Client) Kill(ctx context.Context) (*Exit, error) { return ask[Exit](ctx, c, OpKill, nil) }

// Fail is Kill of a VMM whose launch can't be seen through: a shim in a pod tells
// its owner why.
func (c *Client) Fail(ctx context.Context, why contract.Ending) (*Exit, error) {
	return ask[Exit](ctx, c, OpKill, Kill{Reason: why.Sentence(), Ending: &why})
}

// Release ends a shim whose VMM isn't running; a shim in a pod says why, unless why is nil.
func (c *Client) Release(ctx context.Context, why *contract.Ending) error {
	if why == nil {
		return c.request(ctx, OpRelease, Release{})
	}
	return c.request(ctx, OpRelease, Release{Reason: why.Sentence(), Ending: why})
}

// Attach gives the VMM one more device. When ctx ends first it is aborted, and undone
// unless it has come to its end.
func (c *Client) Attach(ctx context.Context, a Attach, files []*os.File) error {
	return undoable(ctx, c, &call{op: OpAttach}, a, files, nil)
}

// Detach takes a device away. It waits for the guest as long as the request says. When
// ctx ends first the guest may release the device later, and an Event tells of it.
func (c *Client) Detach(ctx context.Context, d Detach) error {
	return undoable(ctx, c, &call{op: OpDetach}, d, nil, nil)
}

// Describe asks a shim in a pod which VM it is there for. Call Done when the answer
// isn't needed any more.
func (c *Client) Describe(ctx context.Context, args Describe) (*Described, error) {
	return c.described(ctx, OpDescribe, args)
}

// OpenImage gives a shim in a pod the volume that has the image to restore, and returns what
// Described.Restore says of it, once the disks are back that were made in the saved pod. volume is a
// folder, open for reading or by O_PATH, and stays the caller's. Call Done as after Describe.
func (c *Client) OpenImage(ctx context.Context, volume *os.File) (*Described, error) {
	return c.described(ctx, OpImage, nil, volume)
}

func (c *Client) described(ctx context.Context, op Op, args any, files ...*os.File) (*Described, error) {
	d := new(Described)
	pending, err := c.send(ctx, args, files, &call{op: op, into: d})
	if err != nil {
		return nil, err
	}
	defer c.forget(pending)
	r, err := c.finish(ctx, pending, nil)
	if err != nil {
		return nil, err
	}
	closeAll(r.files)
	d.held = r.held
	return d, nil
}

// Done gives back the room that the answer takes among those of all pods, see
// NewPodClient.
func (d *Described) Done() { d.held.release() }

// Console attaches to the serial console. Up to backlog bytes of what was last
// printed come first, as far as the shim has kept them.
func (c *Client) Console(ctx context.Context, backlog int) (net.Conn, error) {
	return c.socket(ctx, OpConsole, Console{Backlog: backlog})
}

// Display attaches to the guest's display by VNC. The client that has it is cut off; with
// keep the error is CodeBusy if there is one.
func (c *Client) Display(ctx context.Context, keep bool) (net.Conn, error) {
	return c.socket(ctx, OpDisplay, Display{Keep: keep})
}

// Freeze has the guest's file systems frozen, and thawed again by the shim when the time
// is over.
func (c *Client) Freeze(ctx context.Context, timeout time.Duration) error {
	return c.request(ctx, OpFreeze, Freeze{Timeout: timeout})
}

// Thaw ends a freeze.
func (c *Client) Thaw(ctx context.Context) error {
	return c.request(ctx, OpThaw, nil)
}

// Reboot asks the guest to reboot, with the power button if its agent can't.
func (c *Client) Reboot(ctx context.Context, button bool) error {
	return c.request(ctx, OpReboot, Reboot{Button: button})
}

// Probe asks the guest's agent, or has it run a program.
func (c *Client) Probe(ctx context.Context, p Probe) (*Probed, error) {
	return ask[Probed](ctx, c, OpProbe, p)
}

// Driver has the shim start a VMM's driver, and give it the end of a connection. The file stays the caller's.
func (c *Client) Driver(ctx context.Context, name string, end *os.File) error {
	pending, err := c.send(ctx, Driver{Name: name}, []*os.File{end}, &call{op: OpDriver})
	if err != nil {
		return err
	}
	defer c.forget(pending)
	r, err := c.finish(ctx, pending, nil)
	r.drop()
	return err
}

// Dial connects to an address from where the shim is: in a pod, from inside of it. The
// connection is the caller's.
func (c *Client) Dial(ctx context.Context, d DialTo) (net.Conn, error) {
	conn, err := c.socket(ctx, OpDial, d)
	if err != nil {
		return nil, err
	}
	if got := conn.RemoteAddr(); got == nil || got.Network() != d.Network {
		conn.Close()
		return nil, fmt.Errorf("%w: %s: not a connection by %s came with the reply", ErrMessage, OpDial, d.Network)
	}
	return conn, nil
}

// socket makes a request whose reply is a socket's descriptor.
func (c *Client) socket(ctx context.Context, op Op, args any) (net.Conn, error) {
	r, err := c.do(ctx, op, args, nil)
	if err != nil {
		return nil, err
	}
	defer r.drop()
	if len(r.files) != 1 {
		return nil, fmt.Errorf("%w: %s: %d files came with the reply, not one", ErrMessage, op, len(r.files))
	}
	conn, err := fileConn(r.files[0])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	return conn, nil
}

// ask makes a request whose reply has a body.
func ask[T any](ctx context.Context, c *Client, op Op, args any) (*T, error) {
	v := new(T)
	r, err := c.do(ctx, op, args, v)
	if err != nil {
		return nil, err
	}
	r.drop()
	return v, nil
}

// undoable makes a request that is aborted when ctx ends, and then waits until
// the shim has undone it. What came to its end before the abort is returned.
func undoable(ctx context.Context, c *Client, pending *call, args any, files []*os.File, progress func(Progress)) error {
	op := pending.op
	if progress != nil {
		pending.progress = make(chan Progress, 1)
	}
	pending, err := c.send(ctx, args, files, pending)
	if err != nil {
		return err
	}
	defer c.forget(pending)
	settled, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	// Only now, for the shim must see the request before the abort.
	aborted := make(chan struct{})
	unwatch := context.AfterFunc(ctx, func() {
		defer close(aborted)
		abort, cancel := context.WithTimeout(settled, undoTime)
		defer cancel()
		if c.request(abort, OpAbort, nil) != nil {
			stop() // its outcome is unknown, don't wait for the request's
		}
	})
	r, err := c.finish(settled, pending, progress)
	if !unwatch() {
		<-aborted
		if err != nil {
			err = errors.Join(fmt.Errorf("%s: %w", op, context.Cause(ctx)), err)
		}
	}
	r.drop()
	return err
}

// request makes a request whose reply has no body.
func (c *Client) request(ctx context.Context, op Op, args any) error {
	r, err := c.do(ctx, op, args, nil)
	r.drop()
	return err
}
