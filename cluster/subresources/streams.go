package subresources

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// subprotocol is what virtctl asks for: bytes, and nothing around them. Clients that ask for
	// none get the same.
	subprotocol = "plain.kubevirt.io"
	// pieceSize is the most that goes to an agent at once, in bytes, and the size of the buffers
	// of a stream.
	pieceSize = 10 << 10
	// maxStreams are those at once. Each takes some 150 KiB at most.
	maxStreams = 1000
	// maxUserStreams are those of one user at once: others find a place beside his.
	maxUserStreams = maxStreams / 4
	// pingEvery keeps load balancers from dropping streams that are silent. There is no limit to
	// how long a client may take to answer: one that is suspended reads again later, and one that
	// is gone TCP's own keepalive finds.
	pingEvery = 10 * time.Second
	// lastWord is how long a close frame may take to go out, and flushed how long an agent may
	// take to pass on what a client sent before it left.
	lastWord = time.Second
	flushed  = 5 * time.Second
	// maxReason is what fits into a close frame, in bytes.
	maxReason = 123
)

// streams are those that last.
type streams struct {
	places *gate

	mu      sync.Mutex
	all     map[*context.CancelCauseFunc]struct{}
	leaving error
	changed chan struct{} // closed when the last one has ended after leaving was set
}

func newStreams() *streams {
	return &streams{places: newGate(maxStreams, maxUserStreams), all: make(map[*context.CancelCauseFunc]struct{}), changed: make(chan struct{})}
}

// begin returns the context of one more of a user's; leave has to be called at its end.
func (s *streams) begin(ctx context.Context, user string) (_ context.Context, leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaving != nil {
		return nil, nil, apierrors.NewServiceUnavailable(s.leaving.Error())
	}
	free, err := s.places.enter(user)
	if err != nil {
		return nil, nil, err
	}
	ctx, end := context.WithCancelCause(ctx)
	key := &end
	s.all[key] = struct{}{}
	return ctx, func() {
		end(nil)
		free()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.all, key)
		if s.leaving != nil && len(s.all) == 0 {
			close(s.changed)
		}
	}, nil
}

// end ends all, and lets none begin.
func (s *streams) end(ctx context.Context, why error) {
	s.mu.Lock()
	first := s.leaving == nil
	s.leaving = why
	for end := range s.all {
		(*end)(why)
	}
	if first && len(s.all) == 0 {
		close(s.changed)
	}
	s.mu.Unlock()
	select {
	case <-s.changed:
	case <-ctx.Done():
	}
}

// upstream is a stream to an agent. What is received is valid until the next is.
type upstream struct {
	send    func([]byte) error
	receive func() ([]byte, error)
	// close says that nothing more is sent.
	close func() error
}

// stream joins a client with what open makes, which fails before the client is answered.
func (s *Server) stream(c *call, datagrams bool, open func(ctx context.Context) (*upstream, error)) error {
	if !websocket.IsWebSocketUpgrade(c.Request) {
		return badRequest("%s is a stream: ask for a websocket", c.info.Subresource)
	}
	ctx, leave, err := s.streams.begin(c.Context(), c.user())
	if err != nil {
		return err
	}
	defer leave()
	ctx, end := context.WithCancelCause(ctx) // which ends the agent's side as well as the client's
	defer end(nil)
	up, err := open(ctx)
	if err != nil {
		return err
	}
	conn, err := upgrader().Upgrade(c.w, c.Request, nil)
	if err != nil {
		return nil // the upgrader has answered
	}
	defer conn.Close()
	join(ctx, end, conn, up, datagrams)
	return nil
}

// upgrader lets every origin in: the user has been authenticated by the API server, and not by
// what browsers send unasked.
func upgrader() *websocket.Upgrader {
	return &websocket.Upgrader{
		ReadBufferSize: pieceSize, WriteBufferSize: pieceSize, HandshakeTimeout: patience,
		Subprotocols: []string{subprotocol}, CheckOrigin: func(*http.Request) bool { return true },
	}
}

// join passes on what comes from either side until one of them, or ctx, ends. end has to end ctx,
// and ctx the upstream: an agent whose guest is silent does not end its side when the client has
// gone. Nothing is kept here: who reads slowly slows down its own stream, in which the VM's shim
// drops the oldest.
func join(ctx context.Context, end context.CancelCauseFunc, conn *websocket.Conn, up *upstream, datagrams bool) {
	hungUp := make(chan struct{})
	context.AfterFunc(ctx, func() { // it also ends a write to a client that does not read
		hangUp(conn, context.Cause(ctx))
		close(hungUp)
	})
	go ping(ctx, conn)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = fromClient(conn, up, datagrams)
		_ = up.close()
	}()
	go func() { // what was sent before the client left is passed on, if the agent takes it
		select {
		case <-gone:
			select {
			case <-time.After(flushed):
			case <-ctx.Done():
			}
			end(io.EOF)
		case <-ctx.Done():
		}
	}()
	end(toClient(conn, up))
	<-hungUp
}

// toClient passes on what the agent sends, and returns why that has ended.
func toClient(conn *websocket.Conn, up *upstream) error {
	for {
		b, err := up.receive()
		if err != nil {
			return err
		}
		if err := conn.WriteMessage(websocket.BinaryMessage, b); err != nil {
			return err
		}
	}
}

// fromClient passes on what the client sends: messages are pieces of a stream, or datagrams.
func fromClient(conn *websocket.Conn, up *upstream, datagrams bool) error {
	buf := make([]byte, pieceSize)
	if datagrams {
		conn.SetReadLimit(maxDatagram)
	}
	for {
		_, message, err := conn.NextReader()
		if err != nil {
			return err
		}
		if datagrams {
			err = sendWhole(message, up)
		} else {
			err = sendPieces(message, up, buf)
		}
		if err != nil {
			return err
		}
	}
}

func sendWhole(message io.Reader, up *upstream) error {
	b, err := io.ReadAll(message)
	if err != nil {
		return err
	}
	return up.send(b)
}

func sendPieces(message io.Reader, up *upstream, buf []byte) error {
	for {
		n, err := message.Read(buf)
		if n > 0 {
			if err := up.send(buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// ping waits for a client that does not read for as long as it takes: a deadline would end the
// connection.
func ping(ctx context.Context, conn *websocket.Conn) {
	every := time.NewTicker(pingEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			if conn.WriteControl(websocket.PingMessage, nil, time.Time{}) != nil {
				return
			}
		}
	}
}

// hangUp ends a client's connection and says why. One whose place another client has taken is
// just cut off: that is how virtctl knows it.
func hangUp(conn *websocket.Conn, why error) {
	if status.Code(why) != codes.Aborted {
		code, reason := websocket.CloseInternalServerErr, bounded(textOf(why))
		switch {
		case why == nil, errors.Is(why, io.EOF), errors.Is(why, context.Canceled):
			code, reason = websocket.CloseNormalClosure, ""
		case errors.Is(why, errReplaced):
			code = websocket.CloseGoingAway
		case status.Code(why) == codes.Unavailable:
			reason = "the connection to the agent of the guest's node was lost: connect again"
		}
		message := websocket.FormatCloseMessage(code, cut(reason, maxReason))
		_ = conn.WriteControl(websocket.CloseMessage, message, time.Now().Add(lastWord)) // fails if the client has gone
	}
	conn.Close()
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	if s, is := status.FromError(err); is {
		return s.Message()
	}
	return err.Error()
}
