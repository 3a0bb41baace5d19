package nodes

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmlet/vmlet/cluster/nodes/nodestest"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/test/everything"
)

// deaf passes bytes on between a client and an agent until it is dead: connections stay, as
// those of a machine that has lost its power.
func deaf(t *testing.T, to string) (address string, dead *atomic.Bool) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	dead = new(atomic.Bool)
	pass := func(to io.Writer, from io.Reader) {
		for buf := make([]byte, 4096); ; {
			n, err := from.Read(buf)
			if err != nil {
				return
			}
			if !dead.Load() {
				_, _ = to.Write(buf[:n])
			}
		}
	}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			agent, err := net.Dial("tcp", to)
			if err != nil {
				client.Close()
				continue
			}
			t.Cleanup(func() { client.Close(); agent.Close() })
			go pass(agent, client)
			go pass(client, agent)
		}
	}()
	return l.Addr().String(), dead
}

// TestDeadAgent: an agent whose machine is gone without a word is lost within the time that
// the controller allows, and found out by nothing but the connection itself.
func TestDeadAgent(t *testing.T) {
	if aliveEvery+alivePatience >= 20*time.Second {
		t.Errorf("an agent is found to be dead after %v", aliveEvery+alivePatience)
	}
	everything.OrSkip(t, "waits for a connection's keep-alive")
	w := newWorld(t)
	w.serve(nodestest.NewAgent(vmOf(web, nodev1.State_STATE_RUNNING)), "a", "a")
	address, dead := deaf(t, w.endpoints["a"].Address)
	w.SetAgents(map[string]Endpoint{"a": {address}})
	w.SetPod("a", web)
	w.until("a", web.UID, heardOf(nodev1.State_STATE_RUNNING))
	dead.Store(true)
	w.until("a", web.UID, unheard)
}
