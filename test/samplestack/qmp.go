package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// qmp is a conversation with the VMM: a request, a reply, and events in between.
type qmp struct {
	conn   *net.UnixConn
	asking sync.Mutex
	answer chan reply
	events chan event
	closed chan struct{}
}

type reply struct {
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Desc string `json:"desc"`
	} `json:"error"`
	event
}

type event struct {
	Event string          `json:"event"`
	Data  json.RawMessage `json:"data"`
}

var errClosed = errors.New("the VMM has closed its socket")

func dialQMP(ctx context.Context, dial func(context.Context, string) (net.Conn, error), socket string) (*qmp, error) {
	conn, err := dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	unixConn, is := conn.(*net.UnixConn)
	if !is {
		conn.Close()
		return nil, fmt.Errorf("%s is no unix socket", socket)
	}
	q := &qmp{conn: unixConn, answer: make(chan reply, 1), events: make(chan event, 64), closed: make(chan struct{})}
	go q.read()
	if err := q.do(ctx, "qmp_capabilities", nil, nil); err != nil {
		conn.Close()
		return nil, err
	}
	return q, nil
}

func (q *qmp) read() {
	defer close(q.closed)
	defer close(q.events)
	d := json.NewDecoder(io.LimitReader(q.conn, 1<<30))
	for {
		var r reply
		if d.Decode(&r) != nil {
			return
		}
		switch {
		case r.Event != "":
			select {
			case q.events <- r.event:
			default: // nobody reads: it is no more than news
			}
		case r.Return != nil || r.Error != nil:
			q.answer <- r
		}
	}
}

// do runs a command. A reply that does not come in time ends the conversation: the next one
// would be taken for it.
func (q *qmp) do(ctx context.Context, command string, arguments, out any, files ...*os.File) error {
	q.asking.Lock()
	defer q.asking.Unlock()
	b, err := json.Marshal(map[string]any{"execute": command, "arguments": arguments})
	if arguments == nil {
		b, err = json.Marshal(map[string]any{"execute": command})
	}
	if err != nil {
		return err
	}
	var rights []byte
	for _, f := range files {
		rights = append(rights, unix.UnixRights(int(f.Fd()))...)
	}
	if _, _, err := q.conn.WriteMsgUnix(b, rights, nil); err != nil {
		return fmt.Errorf("%s: %w: %w", command, errClosed, err)
	}
	select {
	case r := <-q.answer:
		switch {
		case r.Error != nil:
			return fmt.Errorf("%s: %s", command, r.Error.Desc)
		case out != nil:
			return json.Unmarshal(r.Return, out)
		}
		return nil
	case <-q.closed:
		return fmt.Errorf("%s: %w", command, errClosed)
	case <-ctx.Done():
		q.conn.Close()
		return fmt.Errorf("%s: %w", command, ctx.Err())
	}
}

type state struct {
	Running bool   `json:"running"`
	Status  string `json:"status"`
}

func (q *qmp) state(ctx context.Context) (s state, err error) {
	err = q.do(ctx, "query-status", nil, &s)
	return s, err
}
