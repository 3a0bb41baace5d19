package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/internal/faultpoint"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/wire"
)

var _ control.Plugger = (*machine)(nil)

const (
	// undoTime bounds the undoing of an attachment that has failed.
	undoTime = 10 * time.Second
	// leavingPace is between two looks at a device that is to go, as an event may be
	// lost, and a reset that takes it away has none; latePace if nobody waits for it.
	leavingPace = 200 * time.Millisecond
	latePace    = 5 * time.Second
)

// errInstructions marks faults in the driver's instructions.
var errInstructions = errors.New("instructions for cloud-hypervisor")

// Attach implements control.Plugger. A call that was begun is seen through, whatever
// becomes of the caller: it takes no time, and what it did is known then.
func (m *machine) Attach(ctx context.Context, a control.Attachment) error {
	var todo wire.Attach
	if err := json.Unmarshal(a.Instructions, &todo); err != nil {
		return fmt.Errorf("%w: %w", errInstructions, err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()
	switch {
	case todo.Disk != nil && todo.Net == nil && len(a.Files) > 0:
		return m.attachDisk(ctx, *todo.Disk, a)
	case todo.Net != nil && todo.Disk == nil:
		return m.attachNet(ctx, todo.Net, a)
	}
	return fmt.Errorf("%w: want a disk with its files, or an interface", errInstructions)
}

// attachDisk sees that what the VMM has opened by a name is what was checked: the name
// could lead elsewhere by then.
func (m *machine) attachDisk(ctx context.Context, d chapi.Disk, a control.Attachment) error {
	info, err := m.api.Info(ctx)
	if err != nil {
		return wrap(err)
	}
	if info.State == chapi.StateCreated {
		return &shim.Error{Code: shim.CodePrecondition, Message: "the guest has not been booted yet, and cloud-hypervisor would open the disk when it is: let the VM run, and attach the disk then"}
	}
	d.Direct = d.Direct && !slices.Contains(a.Buffered, 0)
	before, err := openedBy(m.link.PID)
	if err != nil {
		return err
	}
	_, err = m.api.AddDisk(ctx, d)
	faultpoint.Reach("cloud-hypervisor.attach.added")
	if err == nil {
		err = m.hasOpened(before, a.Files)
	} else {
		err = m.fenced(err, d.Path)
	}
	if err != nil {
		return errors.Join(wrap(err), m.takeBack(ctx, d.ID, err))
	}
	return nil
}

// fenced says what to do where a lock, or Landlock, keeps a VMM from a file. The VMM has
// words for the error alone.
func (m *machine) fenced(err error, path string) error {
	var refused *chapi.Error
	denied := func(cause string) bool { return strings.Contains(strings.ToLower(cause), unix.EACCES.Error()) }
	if errors.As(err, &refused) && blames(refused, alreadyLocked) {
		return inUse(plan.File{Path: path}, err)
	}
	if !m.vm.Config.Landlock || !errors.As(err, &refused) || !slices.ContainsFunc(refused.Causes, denied) {
		return err
	}
	return fmt.Errorf("%w (%w): is %s, or what a link on the way leads to, in a folder of hotplugFolders in the agent's configuration, as that was when the VM was started?",
		err, unix.EACCES, path)
}

func (m *machine) attachNet(ctx context.Context, add *wire.AddNet, a control.Attachment) error {
	if !within(add, a.Files) {
		return fmt.Errorf("%w: %d files of %d from %d on are wanted as a tap", errInstructions, add.Taps(), len(a.Files), add.Tap)
	}
	kept, err := keepTap(add, a.Files)
	if err != nil {
		return err
	}
	if _, err := m.api.AddNet(ctx, add.Net, kept.files...); err != nil {
		return errors.Join(wrap(err), m.takeBack(ctx, add.Net.ID, err), kept.close())
	}
	m.taps = append(m.taps, kept)
	return nil
}

// duplicate is a descriptor of this process's for the same file.
func duplicate(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl F_DUPFD_CLOEXEC", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// takeBack removes a device over an error; one that the VMM has refused is not there.
func (m *machine) takeBack(ctx context.Context, id string, because error) error {
	var refused *chapi.Error
	if errors.As(because, &refused) || errors.Is(because, chapi.ErrNotSent) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	if err := m.remove(ctx, id); err != nil {
		return fmt.Errorf("take %s back: %w", id, err)
	}
	return nil
}

// Detach implements control.Plugger.
func (m *machine) Detach(ctx context.Context, instructions json.RawMessage) error {
	todo, err := detachment(instructions)
	if err != nil {
		return err
	}
	if err := m.remove(ctx, todo.Device); err != nil {
		return err
	}
	m.taps = slices.DeleteFunc(m.taps, func(t tap) bool {
		if t.id != todo.Device {
			return false
		}
		_ = t.close() // the interface has gone
		return true
	})
	return nil
}

func detachment(instructions json.RawMessage) (todo wire.Detach, err error) {
	err = json.Unmarshal(instructions, &todo)
	if err == nil && todo.Device == "" {
		err = errors.New("no device")
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", errInstructions, err)
	}
	return todo, err
}

// remove asks the guest to let a device go, unless it was asked before, and waits until
// it has.
func (m *machine) remove(ctx context.Context, id string) error {
	info, err := m.api.Info(ctx)
	if err != nil {
		return wrap(err)
	}
	if configured(&info.Config, id) {
		m.leaving.take(&info.Config, id)
		if err := m.api.RemoveDevice(ctx, id); err != nil {
			return wrap(err)
		}
		faultpoint.Reach("cloud-hypervisor.detach.asked")
	}
	if err := m.awaitGone(ctx, id, leavingPace); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", control.ErrGuestKeeps, err)
		}
		return err
	}
	m.leaving.forget(id)
	return nil
}

// AwaitGone implements control.Plugger.
func (m *machine) AwaitGone(ctx context.Context, instructions json.RawMessage) error {
	todo, err := detachment(instructions)
	if err != nil {
		return err
	}
	return m.awaitGone(ctx, todo.Device, latePace)
}

// awaitGone returns when the VMM has nothing of a device any more. Its word for that is
// vm.info; the event is when to ask. A VM that is away while it is saved, or a VMM that
// is busy, is waited for.
func (m *machine) awaitGone(ctx context.Context, id string, pace time.Duration) error {
	for {
		removal := m.hub.removal()
		info, err := m.api.Info(ctx)
		switch {
		case errors.Is(err, chapi.ErrDisconnected) && ctx.Err() == nil:
			return wrap(err)
		case err == nil && !present(&info, id):
			return nil
		}
		select {
		case <-removal:
		case <-time.After(pace):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// present says whether a VM has a device, be it that it was asked for back.
func present(info *chapi.Info, id string) bool {
	_, there := info.Devices[id]
	return there || configured(&info.Config, id)
}

func configured(c *chapi.VMConfig, id string) bool {
	return slices.ContainsFunc(c.Disks, func(d chapi.Disk) bool { return d.ID == id }) ||
		slices.ContainsFunc(c.Nets, func(n chapi.Net) bool { return n.ID == id })
}

// leavers are devices that the guest was asked to let go. They are in the VMM's
// configuration no more, and in a snapshot still: a VM that is made of that needs them.
type leavers struct {
	disks []chapi.Disk
	nets  []chapi.Net
}

// take notes a device as it was configured.
func (l *leavers) take(c *chapi.VMConfig, id string) {
	l.forget(id)
	for _, d := range c.Disks {
		if d.ID == id {
			l.disks = append(l.disks, d)
		}
	}
	for _, n := range c.Nets {
		if n.ID == id {
			l.nets = append(l.nets, n)
		}
	}
}

func (l *leavers) forget(id string) {
	l.disks = slices.DeleteFunc(l.disks, func(d chapi.Disk) bool { return d.ID == id })
	l.nets = slices.DeleteFunc(l.nets, func(n chapi.Net) bool { return n.ID == id })
}

// config is a VM's with those that it still has.
func (l *leavers) config(info *chapi.Info) chapi.VMConfig {
	c := info.Config
	c.Disks, c.Nets = slices.Clone(c.Disks), slices.Clone(c.Nets)
	for _, d := range l.disks {
		if _, there := info.Devices[d.ID]; there && !configured(&c, d.ID) {
			c.Disks = append(c.Disks, d)
		}
	}
	for _, n := range l.nets {
		if _, there := info.Devices[n.ID]; there && !configured(&c, n.ID) {
			c.Nets = append(c.Nets, n)
		}
	}
	return c
}
