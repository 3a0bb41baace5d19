package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/vmm/remote/wire"
)

const (
	explainTime = 10 * time.Second
	// maxField bounds the name of a specification's field, in bytes.
	maxField = 256
	// maxThreads bounds how many virtual CPUs a driver may say that there are.
	maxThreads = 4096
)

// machine is a VMM behind a driver's program.
type machine struct {
	peer      *wire.Peer
	link      control.Link
	release   func() error
	listeners atomic.Int32
}

func (m *machine) call(ctx context.Context, method string, request, answer any, files ...*os.File) error {
	ctx, cancel := context.WithTimeout(ctx, wire.CallTime)
	defer cancel()
	return m.callLong(ctx, 0, method, request, answer, files...)
}

func (m *machine) callLong(ctx context.Context, settle time.Duration, method string, request, answer any, files ...*os.File) error {
	got, err := m.peer.CallLong(ctx, settle, method, request, answer, files...)
	for _, f := range got { // none is expected
		f.Close()
	}
	return understood(ctx, err)
}

// understood gives an error of the driver's the meaning that it has to the shim.
func understood(ctx context.Context, err error) error {
	meaning := map[wire.Code]error{
		wire.CodeVMMClosed: control.ErrMonitorClosed, wire.CodeNoGuestAgent: control.ErrNoGuestAgent, wire.CodeGuestKeeps: control.ErrGuestKeeps,
		wire.CodeDeadline: context.DeadlineExceeded,
	}[wire.CodeOf(err)]
	switch {
	case meaning != nil:
		return fmt.Errorf("%w: %w", meaning, err)
	case wire.CodeOf(err) == wire.CodeCanceled && ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return err
}

func (m *machine) Stop(ctx context.Context) (bool, error) {
	var answer wire.StopResponse
	if err := m.call(ctx, "Stop", nil, &answer); err != nil {
		return false, err
	}
	if answer.Failure != "" {
		return answer.Ran, understood(ctx, wire.Errorf(wire.Code(answer.FailureCode), "Stop: %.8000s", answer.Failure))
	}
	return answer.Ran, nil
}

func (m *machine) Continue(ctx context.Context) error { return m.call(ctx, "Continue", nil, nil) }

func (m *machine) SaveState(ctx context.Context, f *os.File, sharedRAM bool) error {
	return m.callLong(ctx, wire.Settling, "SaveState", wire.SaveStateRequest{SharedRAM: sharedRAM}, nil, f)
}

func (m *machine) Regain(ctx context.Context) error { return m.call(ctx, "Regain", nil, nil) }

// LoadState passes a descriptor that was opened for the driver alone: it may not open the file
// by itself, and its offset is nobody else's.
func (m *machine) LoadState(ctx context.Context, f *os.File, sharedRAM bool) error {
	if own, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd())); err == nil { // else the shim has no such right either
		defer own.Close()
		f = own
	}
	return m.callLong(ctx, wire.Settling, "LoadState", wire.LoadStateRequest{SharedRAM: sharedRAM}, nil, f)
}

func (m *machine) PowerDown(ctx context.Context) error { return m.call(ctx, "PowerDown", nil, nil) }
func (m *machine) Quit(ctx context.Context) error      { return m.call(ctx, "Quit", nil, nil) }

// Ending is empty where the driver says nothing of it: then the VMM's exit status tells.
func (m *machine) Ending(ctx context.Context) control.Ending {
	var e wire.EndingResponse
	if err := m.callLong(ctx, 0, "Ending", nil, &e); err != nil {
		return control.Ending{}
	}
	return control.Ending{Shutdown: e.Shutdown, Suspended: e.Suspended, Panicked: e.Panicked, Told: e.Told, Closed: e.Closed}
}

func (m *machine) Close() error {
	err := m.peer.Close()
	if m.release != nil {
		err = errors.Join(err, m.release())
	}
	return err
}

type threads struct{ m *machine }

func (t threads) VCPUThreads(ctx context.Context) ([]int, error) {
	var answer wire.VcpuThreadsResponse
	if err := t.m.call(ctx, "VcpuThreads", nil, &answer); err != nil {
		return nil, err
	}
	if len(answer.Threads) > maxThreads {
		return nil, fmt.Errorf("VcpuThreads: the driver names %d threads, at most %d make sense", len(answer.Threads), maxThreads)
	}
	return answer.Threads, nil
}

type plugger struct{ m *machine }

func (p plugger) Attach(ctx context.Context, a control.Attachment) error {
	return p.m.callLong(ctx, wire.Settling, "Attach", wire.AttachRequest{Instructions: a.Instructions, Buffered: a.Buffered}, nil, a.Files...)
}

func (p plugger) Detach(ctx context.Context, instructions json.RawMessage) error {
	return p.m.callLong(ctx, wire.Settling, "Detach", wire.DetachRequest{Instructions: instructions}, nil)
}

func (p plugger) AwaitGone(ctx context.Context, instructions json.RawMessage) error {
	return p.m.callLong(ctx, 0, "AwaitGone", wire.AwaitGoneRequest{Instructions: instructions}, nil)
}

type displayer struct{ m *machine }

func (d displayer) AddDisplay(ctx context.Context, client *os.File) error {
	return d.m.call(ctx, "AddDisplay", nil, nil, client)
}

type guest struct{ m *machine }

func (g guest) Freeze(ctx context.Context) error { return g.m.callLong(ctx, 0, "Freeze", nil, nil) }
func (g guest) Thaw(ctx context.Context) error   { return g.m.callLong(ctx, 0, "Thaw", nil, nil) }
func (g guest) Ping(ctx context.Context) error   { return g.m.call(ctx, "Ping", nil, nil) }

// maxOutput bounds what is taken of a guest's program's output, in bytes.
const maxOutput = 64 << 10

func (g guest) Exec(ctx context.Context, command []string) (*shim.Probed, error) {
	var r wire.ExecResponse
	if err := g.m.callLong(ctx, 0, "Exec", wire.ExecRequest{Command: command}, &r); err != nil {
		return nil, err
	}
	return &shim.Probed{Frozen: r.Frozen, Moving: r.Moving, Code: r.Code, Output: r.Output[:min(len(r.Output), maxOutput)], Errors: r.Errors[:min(len(r.Errors), maxOutput)]}, nil
}

func (g guest) Reboot(ctx context.Context, button bool) error {
	return g.m.call(ctx, "Reboot", wire.RebootRequest{Button: button}, nil)
}

func (g guest) SetKeys(ctx context.Context, user string, keys []string) error {
	return g.m.call(ctx, "SetKeys", wire.SetKeysRequest{User: user, Keys: keys}, nil)
}

func (g guest) SetPassword(ctx context.Context, user, password string) error {
	return g.m.call(ctx, "SetPassword", wire.SetPasswordRequest{User: user, Password: password}, nil)
}

// withParts is a Machine that has what the driver says that this VM has: the shim asks by the
// type.
func withParts(m *machine, features []string) control.Machine {
	has := func(f string) bool { return slices.Contains(features, f) }
	parts := 0
	for i, f := range []string{wire.FeaturePlug, wire.FeatureDisplay, wire.FeatureVCPUThreads, wire.FeatureGuest} {
		if has(f) {
			parts |= 1 << i
		}
	}
	return combined(m, parts, plugger{m}, displayer{m}, threads{m}, guest{m})
}
