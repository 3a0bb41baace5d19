package qmptest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"

	"github.com/vmlet/vmlet/vmm/qemu/qmp"
)

// session is one client's connection.
type session struct {
	server *Server
	conn   *net.UnixConn

	writing sync.Mutex

	mu         sync.Mutex
	negotiated bool
	files      []*os.File
}

func (c *session) close() { c.conn.Close() }

func (c *session) isNegotiated() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.negotiated
}

// serve reads commands until the client has gone.
func (c *session) serve() {
	for {
		line, err := c.readLine()
		if err != nil {
			return
		}
		for len(bytes.TrimSpace(line)) > 0 {
			line = c.handleNext(line)
		}
	}
}

// maxLine bounds what a client sends, as QEMU's JSON lexer does (MAX_TOKEN_SIZE
// in its qobject/json-streamer.c).
const maxLine = 64 << 20

// readLine reads byte by byte, as QEMU does: so files come with the command on
// whose first byte they were sent, and neither with an earlier nor a later one.
func (c *session) readLine() ([]byte, error) {
	var line []byte
	b := make([]byte, 1)
	oob := make([]byte, syscall.CmsgSpace(qmp.MaxFiles*4))
	for {
		n, oobn, _, _, err := c.conn.ReadMsgUnix(b, oob)
		if err != nil {
			return nil, err
		}
		if oobn > 0 {
			if err := c.keepFiles(oob[:oobn]); err != nil {
				return nil, err
			}
		}
		switch {
		case n == 0:
			return nil, errors.New("closed by the client")
		case b[0] == '\n':
			return line, nil
		case len(line) == maxLine:
			return nil, errors.New("line too long")
		}
		line = append(line, b[0])
	}
}

// handleNext handles the first of a line's documents and returns the rest of the
// line, which is nothing if that was no JSON.
func (c *session) handleNext(line []byte) (rest []byte) {
	document, rest, err := firstDocument(line)
	if err == nil {
		var r *Request
		if r, err = c.parse(document); err == nil {
			c.dispatch(r)
			return rest
		}
	}
	var refused *requestError
	if errors.As(err, &refused) {
		(&Request{session: c, id: refused.id}).Fail(refused.err)
		return rest
	}
	(&Request{session: c}).Fail(fmt.Errorf("JSON parse error, %w", err))
	return nil
}

// dispatch carries out a command whose form is right.
func (c *session) dispatch(r *Request) {
	isNegotiation := r.Command == "qmp_capabilities"
	known, ok := c.server.lookup(r.Command)
	switch {
	case !c.isNegotiated() && !isNegotiation:
		r.Fail(notFound("Expecting capabilities negotiation with 'qmp_capabilities'"))
		return
	case c.isNegotiated() && isNegotiation:
		r.Fail(notFound("Capabilities negotiation is already complete, command ignored"))
		return
	case isNegotiation:
		known = command{Args{"*enable": Array}, c.negotiate}
	case !ok:
		r.Fail(notFound(fmt.Sprintf("The command %s has not been found", r.Command)))
		return
	}
	if known.args != nil {
		if err := known.args.check(r.Arguments); err != nil {
			r.Fail(err)
			return
		}
	}
	known.handler(r)
}

// negotiate enables nothing, as the server offers nothing.
func (c *session) negotiate(r *Request) {
	var args struct {
		Enable []string `json:"enable"`
	}
	if err := r.Bind(&args); err != nil {
		r.Fail(generic("Invalid parameter type for 'enable', expected: array of string"))
		return
	}
	if len(args.Enable) > 0 {
		r.Fail(generic("Parameter 'enable' does not accept value '%s'", args.Enable[0]))
		return
	}
	c.mu.Lock()
	c.negotiated = true
	c.mu.Unlock()
	r.Return(nil)
}

// send writes a message in one piece, ended as QEMU ends it.
func (c *session) send(message any) error {
	line, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("QMP test server: %w", err)
	}
	return c.write(append(line, "\r\n"...))
}

func (c *session) write(data []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err := c.conn.Write(data)
	return err
}

// keepFiles takes files in place of those that no command took.
func (c *session) keepFiles(oob []byte) error {
	messages, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return err
	}
	var files []*os.File
	for _, m := range messages {
		fds, err := syscall.ParseUnixRights(&m)
		if err != nil {
			return err
		}
		for _, fd := range fds {
			syscall.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	c.closeFiles()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.files = files
	return nil
}

// takeFile takes the first file and closes the others, as QEMU does.
func (c *session) takeFile() (*os.File, error) {
	c.mu.Lock()
	files := c.files
	c.files = nil
	c.mu.Unlock()
	if len(files) == 0 {
		return nil, &qmp.Error{Class: qmp.GenericError, Desc: "No file descriptor supplied via SCM_RIGHTS"}
	}
	for _, file := range files[1:] {
		file.Close()
	}
	return files[0], nil
}

func (c *session) closeFiles() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, file := range c.files {
		file.Close()
	}
	c.files = nil
}

func notFound(desc string) error { return &qmp.Error{Class: qmp.CommandNotFound, Desc: desc} }

func wireError(err error) map[string]string {
	var e *qmp.Error
	if errors.As(err, &e) {
		return map[string]string{"class": string(e.Class), "desc": e.Desc}
	}
	return map[string]string{"class": string(qmp.GenericError), "desc": err.Error()}
}
