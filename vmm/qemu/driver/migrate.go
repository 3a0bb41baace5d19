package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/vmlet/vmlet/internal/faultpoint"
	"github.com/vmlet/vmlet/vmm/qemu/qmp"

	"golang.org/x/sys/unix"
)

const (
	// maxBandwidth replaces the default of 128 MiB/s, in bytes a second: faster
	// than any disk, so no limit.
	maxBandwidth = 64 << 30
	// cancelTime is how long QEMU may take to give up writing.
	cancelTime = 20 * time.Second
	// stateName names the descriptor of the state within QEMU.
	stateName = "vmlet-state"
)

type object = map[string]any

// SaveState implements control.Machine.
func (m *machine) SaveState(ctx context.Context, f *os.File, sharedRAM bool) error {
	if err := m.leavePostmigrate(ctx); err != nil {
		return err
	}
	if err := m.configure(ctx, sharedRAM); err != nil {
		return err
	}
	if err := m.execute(ctx, "migrate-set-parameters", object{"max-bandwidth": int64(maxBandwidth)}, nil); err != nil {
		return err
	}
	faultpoint.Reach("qemu.save.configured")
	// A description of its own, with the access mode that QEMU's file: asks
	// for, and whose offset nobody else moves.
	out, err := reopen(f, os.O_WRONLY)
	if err != nil {
		return err
	}
	defer out.Close()
	m.saved.Store(true) // before: it may be done though nobody has heard of it
	err = m.transfer(ctx, out, "migrate", nil)
	faultpoint.Reach("qemu.save.moved")
	if err = errors.Join(err, m.finalized(ctx)); err != nil {
		return err
	}
	return looksSaved(f)
}

// header is how QEMU's device state begins: QEMU_VM_FILE_MAGIC and QEMU_VM_FILE_VERSION of
// its migration/savevm.h, which are the same since 2008.
const header = "QEVM\x00\x00\x00\x03"

// looksSaved doesn't take QEMU at its word: with an image of nothing the guest would be
// lost. What comes after the header is QEMU's own.
func looksSaved(f *os.File) error {
	begins := make([]byte, len(header))
	switch n, err := f.ReadAt(begins, 0); {
	case n == 0 && errors.Is(err, io.EOF):
		return errors.New("QEMU says that it has saved its device state, and the file is empty")
	case err != nil && !errors.Is(err, io.EOF):
		return err
	case string(begins[:n]) != header:
		return fmt.Errorf("QEMU says that it has saved its device state, and the file begins with %q, which no device state does", begins[:n])
	}
	return nil
}

// finalizing is how long QEMU may take to put a migration away.
const finalizing = 10 * time.Second

// finalized waits until QEMU has put the migration away: it reports the end a
// little earlier, and refuses cont until then. No event tells of it.
func (m *machine) finalized(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finalizing)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		s, err := m.status(ctx)
		if err != nil || s.Status != "finish-migrate" {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("QEMU is still %q after %v: whether it writes is unknown", s.Status, finalizing)
		}
	}
}

// leavePostmigrate makes a guest that was paused at an earlier save, and does
// so still, one that can be saved again: QEMU refuses a second migration until
// it has gone on. So it does, for as long as a stop takes. After a reset it is
// "prelaunch", as one that never ran, and QEMU would not refuse, but abort: its disks
// are given up already (bdrv_inactivate_recurse in its block.c).
func (m *machine) leavePostmigrate(ctx context.Context) error {
	s, err := m.status(ctx)
	if err != nil || s.Status != "postmigrate" && (s.Status != "prelaunch" || !m.saved.Load()) {
		return err
	}
	// Also if ctx ends now: it must not be left running.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finalizing)
	defer cancel()
	err = m.execute(ctx, "cont", nil, nil)
	return errors.Join(err, m.execute(ctx, "stop", nil, nil))
}

// LoadState implements control.Machine.
func (m *machine) LoadState(ctx context.Context, f *os.File, sharedRAM bool) error {
	if err := m.configure(ctx, sharedRAM); err != nil {
		return err
	}
	faultpoint.Reach("qemu.load.configured")
	in, err := reopen(f, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer in.Close()
	// With that, QEMU stays when the state is damaged, and says what is wrong. One
	// that doesn't know the argument exits and says it with its last words.
	err = m.transfer(ctx, in, "migrate-incoming", object{"exit-on-error": false})
	if refused(err) {
		err = m.transfer(ctx, in, "migrate-incoming", nil)
	}
	return err
}

// reopen gives QEMU an offset of its own. A driver that is a program without rights may not open
// the file; what it was passed was opened for it alone.
func reopen(f *os.File, flags int) (*os.File, error) {
	again, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), flags, 0)
	if errors.Is(err, fs.ErrPermission) {
		return duplicate(f)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s again: %w", f.Name(), err)
	}
	return again, nil
}

func duplicate(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate %s: %w", f.Name(), err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// configure sets the capabilities. events and x-ignore-shared are as old as
// QEMU 4.0; one without them says so by refusing.
func (m *machine) configure(ctx context.Context, sharedRAM bool) error {
	var off []string
	if m.handedOver.Load() {
		off = handoverCapabilities()
	}
	return m.execute(ctx, "migrate-set-capabilities", object{"capabilities": capabilities(false, sharedRAM, off)}, nil)
}

// capabilities are those of every transfer, and others that are on or off.
func capabilities(on, sharedRAM bool, others []string) []object {
	capability := func(name string, on bool) object { return object{"capability": name, "state": on} }
	all := []object{capability("events", true), capability("x-ignore-shared", sharedRAM)}
	for _, name := range others {
		all = append(all, capability(name, on))
	}
	return all
}

// refused tells an error reply from any other failure: the command was
// understood to the end, or not at all, and nothing has come of it.
func refused(err error) bool {
	var reply *qmp.Error
	return errors.As(err, &reply)
}

// transfer moves state by file:, or by fd: where QEMU refuses that: one before
// 8.2 doesn't know it, and later ones deprecate fd: to a file. Trying is what
// tells them apart for less than asking for the schema costs (236 KiB).
func (m *machine) transfer(ctx context.Context, f *os.File, command string, args object) error {
	err := m.byFile(ctx, f, command, args)
	if !refused(err) {
		return err
	}
	if fdErr := m.byDescriptor(ctx, f, command, args); fdErr != nil {
		if refused(fdErr) {
			return fmt.Errorf("%w (and before that: %w)", fdErr, err)
		}
		return fdErr
	}
	return nil
}

func (m *machine) byFile(ctx context.Context, f *os.File, command string, args object) error {
	var set struct {
		ID int64 `json:"fdset-id"`
	}
	if err := m.qmp.ExecuteWithFiles(ctx, "add-fd", object{"opaque": stateName}, &set, f); err != nil {
		return wrap(err)
	}
	err := m.start(ctx, command, args, fmt.Sprintf("file:/dev/fdset/%d", set.ID))
	return m.cleanUp(ctx, err, "remove-fd", object{"fdset-id": set.ID})
}

func (m *machine) byDescriptor(ctx context.Context, f *os.File, command string, args object) error {
	if err := m.qmp.ExecuteWithFiles(ctx, "getfd", object{"fdname": stateName}, nil, f); err != nil {
		return wrap(err)
	}
	err := m.start(ctx, command, args, "fd:"+stateName)
	if !refused(err) {
		return err // QEMU has taken it
	}
	return m.cleanUp(ctx, err, "closefd", object{"fdname": stateName})
}

// cleanUp takes QEMU's descriptor away, also when ctx has ended. A fault there
// matters only if nothing else is wrong.
func (m *machine) cleanUp(ctx context.Context, err error, command string, args object) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTime)
	defer cancel()
	if cleanErr := m.execute(ctx, command, args, nil); err == nil && cleanErr != nil {
		return cleanErr
	}
	return err
}

// start gives the command and waits until the state has moved. What an earlier
// attempt has reported is not heard: the subscription is new.
func (m *machine) start(ctx context.Context, command string, args object, uri string) error {
	events := m.qmp.Subscribe("MIGRATION")
	defer events.Close()
	arguments := object{"uri": uri}
	for name, value := range args {
		arguments[name] = value
	}
	if err := m.execute(ctx, command, arguments, nil); err != nil {
		if ctx.Err() != nil {
			return m.cancel(ctx, command, events, err)
		}
		return err
	}
	faultpoint.Reach("qemu.migration.begun")
	err := m.settled(ctx, events)
	if err != nil && ctx.Err() != nil {
		return m.cancel(ctx, command, events, err)
	}
	return err
}

// settled waits for the end of a migration. QEMU finishes the file before it
// reports "completed" (migration_completion in its migration/migration.c).
func (m *machine) settled(ctx context.Context, events *qmp.Subscription) error {
	return m.await(ctx, events, "completed")
}

// await waits until a migration has come so far.
func (m *machine) await(ctx context.Context, events *qmp.Subscription, wanted string) error {
	for {
		event, err := events.Next(ctx)
		var missed *qmp.MissedError
		if err != nil && !errors.As(err, &missed) {
			return wrap(err)
		}
		status := ""
		if err == nil {
			status = statusOf(event)
		} else if status, err = m.migrationStatus(ctx); err != nil {
			return err
		}
		switch status {
		case wanted:
			return nil
		case "failed", "cancelled":
			return m.failure(ctx, status)
		}
	}
}

func statusOf(event qmp.Event) string {
	var data struct {
		Status string `json:"status"`
	}
	_ = json.Unmarshal(event.Data, &data) // what can't be read is no end
	return data.Status
}

// migration is MigrationInfo of qapi/migration.json.
type migration struct {
	Status string `json:"status"`
	Error  string `json:"error-desc"`
}

func (m *machine) migrationStatus(ctx context.Context) (string, error) {
	var info migration
	err := m.execute(ctx, "query-migrate", nil, &info)
	return info.Status, err
}

// failure asks for the reason.
func (m *machine) failure(ctx context.Context, status string) error {
	var info migration
	if err := m.execute(ctx, "query-migrate", nil, &info); err != nil {
		return fmt.Errorf("QEMU says %q, and not why: %w", status, err)
	}
	if info.Error == "" {
		return fmt.Errorf("QEMU says %q, and not why", status)
	}
	return fmt.Errorf("QEMU says %q: %s", status, info.Error)
}

// cancel makes QEMU stop writing, and returns when it has, or when whether it
// has is unknown.
func (m *machine) cancel(ctx context.Context, command string, events *qmp.Subscription, why error) error {
	if command != "migrate" {
		return why // the caller ends a QEMU that was to load
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTime)
	defer cancel()
	if err := m.execute(ctx, "migrate_cancel", nil, nil); err != nil {
		return errors.Join(why, err)
	}
	for {
		status, err := m.migrationStatus(ctx)
		if err != nil {
			return errors.Join(why, err)
		}
		switch status {
		case "", "none", "completed", "failed", "cancelled":
			return why
		}
		if _, err := events.Next(ctx); err != nil && ctx.Err() != nil {
			return errors.Join(why, fmt.Errorf("QEMU is still %q after %v: whether it writes is unknown", status, cancelTime))
		} else if errors.Is(err, qmp.ErrDisconnected) {
			return why
		}
	}
}
