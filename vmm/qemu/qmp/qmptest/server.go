// Package qmptest is a QMP server to test clients of QEMU with. It has no VM
// behind it and is as strict as QEMU is: it refuses what comes before the
// negotiation, commands and arguments that it doesn't know, values of the wrong
// type, and JSON that QEMU would not take; and it serves one client at a time.
//
//	server, err := qmptest.Start(filepath.Join(t.TempDir(), "monitor"))
//	...
//	defer server.Close()
//	server.Handle("query-status", qmptest.Args{}, qmptest.Return(map[string]any{"status": "running", "running": true}))
//	client, err := qmp.Dial(ctx, server.Path())
package qmptest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

// Server is a monitor. Its methods may be called from any goroutine.
type Server struct {
	listener *net.UnixListener
	wg       sync.WaitGroup

	mu       sync.Mutex
	commands map[string]command
	greeting any
	session  *session // the client that is served, nil if none
	closed   bool
}

// command is what the server knows of one command.
type command struct {
	args    Args
	handler Handler
}

// Handler carries out a command. Handlers are called one after the other, in the
// order of the commands. One replies by Return or Fail of the request, at once or
// later and from any goroutine, so that a test can delay replies, change their
// order or leave them out.
type Handler func(*Request)

// Start listens at a path and serves one client after the other. Until Handle adds
// more, the server has qmp_capabilities, quit and query-commands.
func Start(path string) (*Server, error) {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("QMP test server: %w", err)
	}
	s := &Server{listener: listener, commands: make(map[string]command)}
	s.SetVersion(10, 0, 2, "qmptest")
	s.Handle("quit", Args{}, func(r *Request) {
		s.Emit("SHUTDOWN", map[string]any{"guest": false, "reason": "host-qmp-quit"})
		r.Return(nil)
		r.session.close()
	})
	s.Handle("query-commands", Args{}, func(r *Request) { r.Return(s.commandList()) })
	s.wg.Go(s.accept)
	return s, nil
}

// Path returns the socket's path.
func (s *Server) Path() string { return s.listener.Addr().String() }

// SetVersion sets what the greeting of the next connection says.
func (s *Server) SetVersion(major, minor, micro int, packageVersion string) {
	s.SetGreeting(map[string]any{
		"version": map[string]any{
			"qemu":    map[string]int{"major": major, "minor": minor, "micro": micro},
			"package": packageVersion,
		},
		"capabilities": []string{},
	})
}

// SetGreeting sets the whole of what the next connection's greeting has in "QMP".
func (s *Server) SetGreeting(greeting any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.greeting = greeting
}

// Handle adds a command, or replaces it. Its arguments are checked before the
// handler is called, unless args is nil.
func (s *Server) Handle(name string, args Args, handler Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commands[name] = command{args, handler}
}

// Return is a Handler that replies with the value each time.
func Return(value any) Handler { return func(r *Request) { r.Return(value) } }

// Fail is a Handler that refuses each time, see [Request.Fail].
func Fail(err error) Handler { return func(r *Request) { r.Fail(err) } }

// Emit sends an event to the client, and reports whether there is one that has
// negotiated. As with QEMU, others don't get it later. A nil data is left out.
func (s *Server) Emit(event string, data any) bool {
	return s.EmitAt(time.Now(), event, data)
}

// EmitAt is Emit with a timestamp.
func (s *Server) EmitAt(at time.Time, event string, data any) bool {
	c := s.current()
	if c == nil || !c.isNegotiated() {
		return false
	}
	message := map[string]any{
		"event":     event,
		"timestamp": map[string]int64{"seconds": at.Unix(), "microseconds": int64(at.Nanosecond() / 1000)},
	}
	if data != nil {
		message["data"] = data
	}
	return c.send(message) == nil
}

// SendRaw sends bytes as they are to the client, to be a server that is broken or
// hostile.
func (s *Server) SendRaw(data []byte) error {
	if c := s.current(); c != nil {
		return c.write(data)
	}
	return errors.New("QMP test server: no client is connected")
}

// Drop ends the client's connection as a VMM that dies does, and goes on serving.
func (s *Server) Drop() {
	if c := s.current(); c != nil {
		c.close()
	}
}

// Close ends the connection and the server, and returns when handlers that run
// have returned.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	c := s.session
	s.mu.Unlock()
	err := s.listener.Close()
	if c != nil {
		c.close()
	}
	s.wg.Wait()
	return err
}

// accept serves one client at a time. The next one's connect succeeds meanwhile,
// since the kernel keeps it in the backlog, and it hears nothing: as with QEMU.
func (s *Server) accept() {
	for {
		conn, err := s.listener.AcceptUnix()
		if err != nil {
			return
		}
		c := &session{server: s, conn: conn}
		s.mu.Lock()
		closed, greeting := s.closed, s.greeting
		s.session = c
		s.mu.Unlock()
		if closed {
			c.close()
		}
		if c.send(map[string]any{"QMP": greeting}) == nil {
			c.serve()
		}
		c.close()
		c.closeFiles()
		s.mu.Lock()
		s.session = nil
		s.mu.Unlock()
	}
}

func (s *Server) current() *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session
}

func (s *Server) lookup(name string) (command, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.commands[name]
	return c, ok
}

func (s *Server) commandList() []map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []map[string]string{{"name": "qmp_capabilities"}}
	for name := range s.commands {
		list = append(list, map[string]string{"name": name})
	}
	return list
}

// Request is a command that was received.
type Request struct {
	Command string
	// Arguments are the command's, "{}" if it has none.
	Arguments json.RawMessage

	session *session
	id      json.RawMessage // nil if there is none
}

// Bind decodes the arguments into v.
func (r *Request) Bind(v any) error { return json.Unmarshal(r.Arguments, v) }

// Return replies with a value; nil stands for the empty object, as QEMU sends it.
// It is no error if the client has gone.
func (r *Request) Return(value any) {
	if value == nil {
		value = struct{}{}
	}
	r.reply("return", value)
}

// Fail refuses the command: with class and description of a *qmp.Error, or as a
// GenericError with err's text.
func (r *Request) Fail(err error) { r.reply("error", wireError(err)) }

// File hands over the file that came last, or the error that QEMU's commands
// reply with if none did. As with QEMU files belong to the connection: one
// command's stay until taken, and others take their place. The caller closes it.
func (r *Request) File() (*os.File, error) { return r.session.takeFile() }

func (r *Request) reply(kind string, value any) {
	message := map[string]any{kind: value}
	if r.id != nil {
		message["id"] = r.id
	}
	r.session.send(message)
}
