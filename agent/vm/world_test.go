package vm

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/agent/store"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
)

// world is a machine with agents on it, one at a time.
type world struct{ *vmtest.World }

func newWorld(t *testing.T) *world { return &world{vmtest.New(t)} }

// testAgent is an agent in a world; end stops it and leaves the VMs as they are.
type testAgent struct {
	*Manager
	*Adopter
	*Guests
	*Hotplug
	*Power
	*Renewer
	*Saver
	store *store.Store
	end   context.CancelFunc
}

func (w *world) start() *testAgent {
	w.T.Helper()
	log := slog.New(slog.DiscardHandler)
	st, err := store.Open(w.StateDir, w.RunDir)
	if err != nil {
		w.T.Fatal(err)
	}
	n := w.Node(log)
	ctx, cancel := context.WithCancel(context.Background())
	m := New(ctx, Options{
		Own: &place.Resources{
			Store: st, Host: w.Host(), Shims: w.Shims(), Node: n, StateDir: w.StateDir, RunDir: w.RunDir, Shim: "/shim", Log: log,
		},
		Hypervisor: w.Hypervisor, BootID: w.BootID, Log: log,
	})
	a := &testAgent{Manager: m, Adopter: m.Adopter, Guests: m.Guests, Hotplug: m.Hotplug, Power: m.Power, Renewer: m.Renewer, Saver: m.Saver, store: st}
	a.end = sync.OnceFunc(func() {
		cancel()
		a.Wait()
		st.Close()
	})
	w.T.Cleanup(a.end)
	if err := a.Adopt(ctx); err != nil {
		w.T.Fatal(err)
	}
	return a
}
