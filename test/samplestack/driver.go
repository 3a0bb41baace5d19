package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/vmlet/vmlet/vmm/driverkit"
)

// driver connects to the VMM for the shim.
type driver struct{}

func (driver) Connect(ctx context.Context, link driverkit.Link) (driverkit.Machine, error) {
	q, err := dialQMP(ctx, link.Dial, shimSocket)
	if err != nil {
		return nil, err
	}
	m := &machine{qmp: q, ended: make(chan struct{})}
	go m.follow()
	return m, nil
}

type machine struct {
	qmp *qmp

	mu     sync.Mutex
	ending driverkit.Ending
	ended  chan struct{}
}

func (m *machine) follow() {
	defer close(m.ended)
	for e := range m.qmp.events {
		m.mu.Lock()
		switch e.Event {
		case "SHUTDOWN":
			told := string(e.Data) != "" && !guestDid(e.Data)
			m.ending.Shutdown, m.ending.Told = !told, told
		case "GUEST_PANICKED":
			m.ending.Panicked = true
		}
		m.mu.Unlock()
	}
}

// wrapped says that the VMM has gone in the kit's words.
func wrapped(err error) error {
	if errors.Is(err, errClosed) {
		return fmt.Errorf("%w: %w", driverkit.ErrVMMClosed, err)
	}
	return err
}

func (m *machine) Stop(ctx context.Context) (bool, error) {
	s, err := m.qmp.state(ctx)
	if err == nil && s.Running {
		err = m.qmp.do(ctx, "stop", nil, nil)
	}
	return s.Running, wrapped(err)
}

func (m *machine) Continue(ctx context.Context) error {
	return wrapped(m.qmp.do(ctx, "cont", nil, nil))
}

// SaveState has all of RAM in it, as the plan says that RAM is the VMM's own.
func (m *machine) SaveState(ctx context.Context, f *os.File, _ bool) error {
	return wrapped(m.migrate(ctx, f, "migrate"))
}

func (m *machine) LoadState(ctx context.Context, f *os.File, _ bool) error {
	return wrapped(m.migrate(ctx, f, "migrate-incoming"))
}

func (m *machine) migrate(ctx context.Context, f *os.File, command string) error {
	if err := m.qmp.do(ctx, "getfd", map[string]string{"fdname": "state"}, nil, f); err != nil {
		return err
	}
	if err := m.qmp.do(ctx, "migrate-set-parameters", map[string]any{"max-bandwidth": int64(1) << 40}, nil); err != nil {
		return err
	}
	if err := m.qmp.do(ctx, command, map[string]string{"uri": "fd:state"}, nil); err != nil {
		return err
	}
	for {
		var r struct {
			Status string `json:"status"`
			Error  string `json:"error-desc"`
		}
		if err := m.qmp.do(ctx, "query-migrate", nil, &r); err != nil {
			return err
		}
		switch r.Status {
		case "completed":
			return nil
		case "failed", "cancelled":
			return fmt.Errorf("%s: %s %s", command, r.Status, r.Error)
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			stop, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			return errors.Join(ctx.Err(), m.qmp.do(stop, "migrate_cancel", nil, nil))
		}
	}
}

// Regain does nothing: QEMU takes its disks back when the guest goes on.
func (m *machine) Regain(context.Context) error { return nil }

func (m *machine) PowerDown(ctx context.Context) error {
	return wrapped(m.qmp.do(ctx, "system_powerdown", nil, nil))
}

func (m *machine) Quit(ctx context.Context) error { return wrapped(m.qmp.do(ctx, "quit", nil, nil)) }

func (m *machine) Ending(ctx context.Context) driverkit.Ending {
	select {
	case <-m.ended:
	case <-ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ending
}

func (m *machine) Close() error { return m.qmp.conn.Close() }
