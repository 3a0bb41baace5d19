package driver

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/test/chtest"
	"github.com/vmlet/vmlet/test/guest"
	"github.com/vmlet/vmlet/test/suites"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/wire"
)

// patience bounds a test; nothing waits for as long unless it is broken.
const patience = time.Minute

// ramSize is the guest's, in bytes.
const ramSize = 8 << 20

// rig is a stand-in for the VMM, in the test's process, with what a driver needs.
type rig struct {
	t    *testing.T
	ctx  context.Context
	dir  string
	vm   wire.VM
	plan plan.Plan
	tell *os.File // the writing end of the pipe for events
	link control.Link
	vmm  *chtest.VMM

	mu    sync.Mutex
	knobs chtest.Knobs
}

func newRig(t *testing.T) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "ch") // the names of sockets must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	ctx, cancel := suites.Wait(t.Context(), t, patience)
	t.Cleanup(cancel)
	r := &rig{t: t, ctx: ctx, dir: dir, plan: plan.Plan{Memory: plan.Memory{Size: ramSize}}}
	r.files()
	r.vm = wire.VM{Folder: r.path("vmm"), Config: chapi.VMConfig{
		CPUs:    &chapi.CPUs{Boot: 2, Max: 2},
		Memory:  &chapi.Memory{Zones: []chapi.MemoryZone{{ID: "ram0", Size: ramSize, File: r.path("ram"), Shared: true}}},
		Payload: &chapi.Payload{Kernel: r.path("kernel")},
		Disks:   []chapi.Disk{{PCI: chapi.PCI{ID: "disk0"}, Path: r.path("disk"), Type: chapi.ImageQCOW2}},
		Serial:  &chapi.Console{Mode: chapi.ConsoleNull},
		Console: &chapi.Console{Mode: chapi.ConsoleOff},
	}}
	r.serve()
	return r
}

func (r *rig) files() {
	r.t.Helper()
	kernel, err := guest.PVH(guest.PVHOptions{})
	r.check(err)
	r.check(os.WriteFile(r.path("kernel"), kernel, 0o600))
	r.check(os.WriteFile(r.path("disk"), []byte("QFI\xfb"), 0o600)) // all that the stand-in looks at
	r.check(os.WriteFile(r.path("ram"), nil, 0o600))
	r.check(os.Truncate(r.path("ram"), ramSize))
	r.check(os.Mkdir(r.path("vmm"), 0o700))
}

// serve starts the stand-in, and makes the link to it.
func (r *rig) serve() {
	r.t.Helper()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: r.path(wire.APISocket), Net: "unix"})
	r.check(err)
	out, in, err := os.Pipe()
	r.check(err)
	r.tell = in
	r.vmm = chtest.New(listener, chtest.Options{Events: in, Knobs: func() chtest.Knobs {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.knobs
	}})
	root, err := os.OpenRoot(r.path("vmm"))
	r.check(err)
	r.t.Cleanup(func() { r.vmm.Close(); in.Close(); out.Close(); root.Close() })
	var dialer net.Dialer
	r.link = control.Link{
		Plan: &r.plan, Events: out, Folder: root, Log: slog.New(slog.NewTextHandler(r.t.Output(), nil)),
		Dial: func(ctx context.Context, name string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", r.path(name))
		},
		Listen: func(name string) (*net.UnixListener, error) {
			return net.ListenUnix("unix", &net.UnixAddr{Name: r.path(name), Net: "unix"})
		},
	}
}

func (r *rig) check(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) path(name string) string { return filepath.Join(r.dir, name) }

// turn changes what the stand-in does.
func (r *rig) turn(knobs chtest.Knobs) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.knobs = knobs
}

// connect has the driver create the VM.
func (r *rig) connect() *machine {
	r.t.Helper()
	m, err := r.tryConnect()
	r.check(err)
	return m
}

func (r *rig) tryConnect() (*machine, error) {
	instructions, err := json.Marshal(&r.vm)
	r.check(err)
	r.plan.Instructions = instructions
	made, err := CloudHypervisor{}.Connect(r.ctx, r.link)
	if err != nil {
		return nil, err
	}
	r.t.Cleanup(func() { made.Close() })
	return made.(*machine), nil
}

// stopped is a VM that has run and stands still.
func (r *rig) stopped() *machine {
	r.t.Helper()
	m := r.connect()
	r.check(m.Continue(r.ctx))
	ran, err := m.Stop(r.ctx)
	if r.check(err); !ran {
		r.t.Fatal("it did not run")
	}
	return m
}

// file is an empty one, open for writing.
func (r *rig) file() *os.File {
	r.t.Helper()
	f, err := os.CreateTemp(r.dir, "state")
	r.check(err)
	r.t.Cleanup(func() { f.Close() })
	return f
}

func (r *rig) content(f *os.File) string {
	r.t.Helper()
	b, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<30))
	r.check(err)
	return string(b)
}

// runs sees that the guest goes on, and that nothing is left in the VMM's folder.
func (r *rig) runs(m *machine) {
	r.t.Helper()
	r.check(m.Continue(r.ctx))
	info, err := m.api.Info(r.ctx)
	if r.check(err); info.State != chapi.StateRunning {
		r.t.Errorf("it is %s", info.State)
	}
	r.empty()
}

func (r *rig) empty() {
	r.t.Helper()
	left, err := os.ReadDir(r.path("vmm"))
	r.check(err)
	for _, f := range left {
		r.t.Errorf("left in the VMM's folder: %s", f.Name())
	}
}
