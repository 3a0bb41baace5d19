package qmp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/vmlet/vmlet/vmm/qemu/qmp"
	"github.com/vmlet/vmlet/vmm/qemu/qmp/qmptest"
)

// patience bounds what a test waits for something that does happen.
const patience = 30 * time.Second

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// startServer starts a strict server and a client of it.
func startServer(t testing.TB, options ...qmp.Option) (*qmptest.Server, *qmp.Client) {
	t.Helper()
	server, err := qmptest.Start(filepath.Join(t.TempDir(), "monitor"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return server, dial(t, server.Path(), options...)
}

func dial(t testing.TB, path string, options ...qmp.Option) *qmp.Client {
	t.Helper()
	client, err := qmp.Dial(testContext(t), path, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func next(t testing.TB, s *qmp.Subscription) qmp.Event {
	t.Helper()
	event, err := s.Next(testContext(t))
	if err != nil {
		t.Fatalf("Next: %v", err)
	}
	return event
}

// peer is the other side of a client's connection, played by the test by hand.
type peer struct {
	t    testing.TB
	conn net.Conn
	r    *bufio.Reader
}

const greetingLine = `{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}, "package": ""}, "capabilities": ["oob"]}}` + "\r\n"

// startPeer returns a negotiated client over a pipe without a buffer, where a write
// waits for its reader.
func startPeer(t testing.TB, options ...qmp.Option) (*peer, *qmp.Client) {
	t.Helper()
	near, far := net.Pipe()
	p := &peer{t, far, bufio.NewReader(far)}
	t.Cleanup(func() { far.Close() })
	go func() {
		p.send(greetingLine)
		p.reply(p.receive(), `{}`)
	}()
	client, err := qmp.New(testContext(t), near, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return p, client
}

func (p *peer) send(data string) {
	if _, err := p.conn.Write([]byte(data)); err != nil {
		p.t.Errorf("peer: %v", err)
	}
}

type received struct {
	Execute   string
	Arguments json.RawMessage
	ID        json.RawMessage
}

func (p *peer) receive() received {
	var r received
	line, err := p.r.ReadBytes('\n')
	if err != nil {
		p.t.Errorf("peer: %v", err)
	} else if err := json.Unmarshal(line, &r); err != nil {
		p.t.Errorf("peer: %v in %.100q", err, line)
	}
	return r
}

func (p *peer) reply(to received, value string) {
	p.send(fmt.Sprintf(`{"return": %s, "id": %s}`+"\r\n", value, to.ID))
}
