package agent

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/vmlet/vmlet/agent/node"
	"github.com/vmlet/vmlet/agent/store"
)

// world is a machine with agents on it, one at a time.
type world struct{ *World }

func newWorld(t *testing.T) *world { return &world{NewWorld(t)} }

// testAgent is an agent in a world; leave ends it as a lost one, without a word.
type testAgent struct {
	*Manager
	world *world
	ctx   context.Context
	node  *node.Node
	log   *slog.Logger
	store *store.Store
	end   context.CancelFunc
}

func (w *world) start() *testAgent {
	w.t.Helper()
	log := slog.New(slog.DiscardHandler)
	st, err := store.Open(w.stateDir, w.runDir)
	if err != nil {
		w.t.Fatal(err)
	}
	n := w.node(log)
	ctx, cancel := context.WithCancel(context.Background())
	a := &testAgent{Manager: newManager(ctx, Options{
		Own: &Resources{
			Store: st, Host: w.Host(), Shims: w.Shims(), Node: n, StateDir: w.stateDir, RunDir: w.runDir, Shim: "/shim", Log: log,
		},
		Hypervisor: w.hypervisor, BootID: w.bootID, Log: log,
	}), world: w, ctx: ctx, node: n, log: log, store: st}
	a.end = sync.OnceFunc(func() {
		cancel()
		a.watches.Wait()
		st.Close()
	})
	w.t.Cleanup(a.end)
	if err := a.adopt(ctx); err != nil {
		w.t.Fatal(err)
	}
	return a
}
