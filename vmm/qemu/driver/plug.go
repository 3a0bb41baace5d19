package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/vmlet/vmlet/internal/faultpoint"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/vmm/qemu/qmp"
	"github.com/vmlet/vmlet/vmm/qemu/wire"
)

var _ control.Plugger = (*machine)(nil)

// undoTime bounds the undoing of an attachment whose caller has gone.
const undoTime = 10 * time.Second

// Attach implements control.Plugger.
func (m *machine) Attach(ctx context.Context, a control.Attachment) error {
	var todo wire.Attach
	if err := json.Unmarshal(a.Instructions, &todo); err != nil {
		return fmt.Errorf("%w: %w", errInstructions, err)
	}
	at := attaching{m: m, files: a.Files}
	for _, step := range todo.Steps {
		if err := at.step(ctx, step); err != nil {
			return errors.Join(err, at.takeBack(ctx))
		}
		faultpoint.Reach("qemu.attach.step-done")
	}
	return nil
}

// errInstructions marks faults in the driver's instructions.
var errInstructions = errors.New("instructions for QEMU")

// attaching is one attachment under way, with what takes it back.
type attaching struct {
	m     *machine
	files []*os.File
	// opened is the path of the last file that QEMU was handed as a disk's.
	opened string
	undo   []wire.Command
}

func (a *attaching) step(ctx context.Context, s wire.Step) error {
	if s.Opens != nil {
		path, err := a.addSet(ctx, *s.Opens)
		if err != nil {
			return err
		}
		if s.Arguments, err = withFilename(s.Arguments, path); err != nil {
			return err
		}
	}
	var with []*os.File
	if s.File != nil {
		file, err := a.file(*s.File)
		if err != nil {
			return err
		}
		with = append(with, file)
	}
	err := a.m.qmp.ExecuteWithFiles(ctx, s.Name, arguments(s.Command), nil, with...)
	var refused *qmp.Error
	if !errors.As(err, &refused) && !errors.Is(err, qmp.ErrNotSent) {
		a.undo = append(a.undo, s.Undo) // without an answer it may have been carried out
	}
	if refused != nil && a.opened != "" && lockRefused(refused.Desc) {
		return inUse(plan.File{Path: a.opened})
	}
	return wrap(err)
}

func (a *attaching) file(index int) (*os.File, error) {
	if index < 0 || index >= len(a.files) {
		return nil, fmt.Errorf("%w: file %d of %d is wanted", errInstructions, index, len(a.files))
	}
	return a.files[index], nil
}

// addSet hands a file over as a set of descriptors, and returns its path.
func (a *attaching) addSet(ctx context.Context, index int) (string, error) {
	file, err := a.file(index)
	if err != nil {
		return "", err
	}
	var set struct {
		ID int64 `json:"fdset-id"`
	}
	if err := a.m.qmp.ExecuteWithFiles(ctx, "add-fd", nil, &set, file); err != nil {
		return "", wrap(err)
	}
	a.opened = file.Name()
	a.undo = append(a.undo, wire.Command{Name: "remove-fd", Arguments: fmt.Appendf(nil, `{"fdset-id":%d}`, set.ID)})
	return fmt.Sprintf("%s%d", fdsetPrefix, set.ID), nil
}

func withFilename(args json.RawMessage, path string) (json.RawMessage, error) {
	var members map[string]any
	if err := json.Unmarshal(args, &members); err != nil || members == nil {
		return nil, fmt.Errorf("%w: arguments %.80q: %v", errInstructions, args, err)
	}
	members["filename"] = path
	return json.Marshal(members)
}

// arguments are nil where there are none, as QEMU wants an object or nothing.
func arguments(c wire.Command) any {
	if len(c.Arguments) == 0 {
		return nil
	}
	return c.Arguments
}

// takeBack undoes it, the last first, whatever has become of the caller.
func (a *attaching) takeBack(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	var errs []error
	for i := len(a.undo) - 1; i >= 0; i-- {
		undo := a.undo[i]
		err := a.m.unlessInUse(ctx, undo.Name, arguments(undo))
		var refused *qmp.Error
		if errors.As(err, &refused) && undo.Name == "closefd" {
			continue // what it was for has used it up
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("take back: %w", err))
		}
	}
	return errors.Join(errs...)
}

// inUsePause is between two tries to remove what is in use still.
const inUsePause = 10 * time.Millisecond

// unlessInUse carries out a command, again while what it is to remove is in use: QEMU
// says that a device is gone before it has let go of what that had (object_finalize,
// deferred by RCU).
func (m *machine) unlessInUse(ctx context.Context, command string, args any) error {
	for {
		err := m.execute(ctx, command, args, nil)
		var refused *qmp.Error
		if !errors.As(err, &refused) || !strings.Contains(refused.Desc, "in use") {
			return err
		}
		select {
		case <-time.After(inUsePause):
		case <-ctx.Done():
			return err
		}
	}
}

// Detach implements control.Plugger.
func (m *machine) Detach(ctx context.Context, instructions json.RawMessage) error {
	todo, err := detachment(instructions)
	if err != nil {
		return err
	}
	if err := m.unplug(ctx, todo.Device); err != nil {
		return err
	}
	// From here on it is QEMU's business alone, and is seen through.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	var errs []error
	if todo.Netdev != "" {
		errs = append(errs, unlessGone(m.unlessInUse(ctx, "netdev_del", map[string]string{"id": todo.Netdev})))
	}
	return errors.Join(append(errs, m.removeNodes(ctx, todo.Nodes))...)
}

func detachment(instructions json.RawMessage) (wire.Detach, error) {
	var todo wire.Detach
	err := json.Unmarshal(instructions, &todo)
	if err == nil && todo.Device == "" {
		err = errors.New("no device")
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", errInstructions, err)
	}
	return todo, err
}

// unplug asks the guest to let a device go, and waits until it has.
func (m *machine) unplug(ctx context.Context, device string) error {
	events := m.qmp.Subscribe(eventDeleted, eventRefused)
	defer events.Close()
	err := m.execute(ctx, "device_del", map[string]string{"id": device}, nil)
	switch {
	case errors.Is(err, qmp.DeviceNotFound):
		return nil
	case err != nil && !underWay(err):
		return err
	}
	there, err := m.hasDevice(ctx, device) // it may have gone before
	if err != nil || !there {
		return keeps(ctx, err)
	}
	return keeps(ctx, m.awaitDeleted(ctx, events, device))
}

// keeps says so if it is the time that was too short for the guest.
func keeps(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", control.ErrGuestKeeps, err)
	}
	return err
}

// underWay: the guest was asked before, and hasn't answered. QEMU has no class for it
// (qmp_device_del in system/qdev-monitor.c).
func underWay(err error) bool {
	var refused *qmp.Error
	return errors.As(err, &refused) && strings.Contains(refused.Desc, "in the process of unplug")
}

// unlessGone forgives that there is no such thing.
func unlessGone(err error) error {
	var refused *qmp.Error
	if errors.Is(err, qmp.DeviceNotFound) || errors.As(err, &refused) && strings.Contains(refused.Desc, "not found") {
		return nil
	}
	return err
}

// Events of qapi/qdev.json.
const (
	eventDeleted = "DEVICE_DELETED"
	eventRefused = "DEVICE_UNPLUG_GUEST_ERROR"
)

// awaitDeleted returns when QEMU says that a device is gone.
func (m *machine) awaitDeleted(ctx context.Context, events *qmp.Subscription, device string) error {
	for {
		event, err := events.Next(ctx)
		var missed *qmp.MissedError
		if errors.As(err, &missed) {
			if there, err := m.hasDevice(ctx, device); err != nil || !there {
				return err
			}
			continue
		}
		if err != nil {
			return wrap(err)
		}
		var about struct {
			Device string `json:"device"`
		}
		if json.Unmarshal(event.Data, &about) != nil || about.Device != device {
			continue
		}
		if event.Name == eventRefused {
			return fmt.Errorf("%w: it has refused to", control.ErrGuestKeeps)
		}
		return nil
	}
}

// AwaitGone implements control.Plugger.
func (m *machine) AwaitGone(ctx context.Context, instructions json.RawMessage) error {
	todo, err := detachment(instructions)
	if err != nil {
		return err
	}
	events := m.qmp.Subscribe(eventDeleted)
	defer events.Close()
	there, err := m.hasDevice(ctx, todo.Device)
	if err == nil && there {
		err = m.awaitDeleted(ctx, events, todo.Device)
	}
	return err
}

// hasDevice looks for a device among those that were named.
func (m *machine) hasDevice(ctx context.Context, device string) (bool, error) {
	var children []struct {
		Name string `json:"name"`
	}
	if err := m.execute(ctx, "qom-list", map[string]string{"path": "/machine/peripheral"}, &children); err != nil {
		return false, err
	}
	for _, c := range children {
		if c.Name == device {
			return true, nil
		}
	}
	return false, nil
}

// fdsetPrefix begins the name of a file that was handed over.
const fdsetPrefix = "/dev/fdset/"

// removeNodes takes nodes out of the block layer, and gives back their files.
func (m *machine) removeNodes(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	var nodes []struct {
		Name string `json:"node-name"`
		File string `json:"file"`
	}
	if err := m.execute(ctx, "query-named-block-nodes", map[string]bool{"flat": true}, &nodes); err != nil {
		return err
	}
	files := make(map[string]string)
	for _, n := range nodes {
		files[n.Name] = n.File
	}
	var errs []error
	for _, name := range names {
		file, there := files[name]
		if !there {
			continue
		}
		if err := m.unlessInUse(ctx, "blockdev-del", map[string]string{"node-name": name}); err != nil {
			errs = append(errs, err)
			continue
		}
		if set, err := strconv.ParseInt(strings.TrimPrefix(file, fdsetPrefix), 10, 64); err == nil && strings.HasPrefix(file, fdsetPrefix) && isFile(name) {
			errs = append(errs, unlessGone(m.execute(ctx, "remove-fd", map[string]int64{"fdset-id": set}, nil)))
		}
	}
	return errors.Join(errs...)
}

// isFile: the node of a format has the name of its file, too.
func isFile(node string) bool { return strings.HasSuffix(node, "-file") }
