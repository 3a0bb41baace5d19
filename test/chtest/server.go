package chtest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// server is the HTTP side: many connections, and one request at a time.
type server struct {
	vmm      *VMM
	listener *net.UnixListener
	wg       sync.WaitGroup
	turn     sync.Mutex // held while a request is carried out: the one HTTP thread

	mu    sync.Mutex
	conns map[*net.UnixConn]bool // nil once it is closed
}

func (s *server) accept() {
	for {
		conn, err := s.listener.AcceptUnix()
		if err != nil {
			return
		}
		s.mu.Lock()
		full, closed := len(s.conns) >= maxConnections, s.conns == nil
		if !full && !closed {
			s.conns[conn] = true
		}
		s.mu.Unlock()
		switch {
		case closed:
			conn.Close()
		case full:
			s.turn.Lock()
			write(conn, http.StatusServiceUnavailable, `{ "error": "there are too many connections" }`)
			s.turn.Unlock()
			conn.Close()
		default:
			s.wg.Go(func() { s.serve(conn) })
		}
	}
}

// close ends the connections. It doesn't wait for them, since a handler may be
// the one that ends the VMM.
func (s *server) close() {
	s.listener.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.conns {
		conn.Close()
	}
	s.conns = nil
}

func (s *server) drop(conn *net.UnixConn) {
	conn.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
}

// serve answers one connection's requests. One that can't be read is answered
// too, and the connection stays open, as with the real one.
func (s *server) serve(conn *net.UnixConn) {
	defer s.drop(conn)
	in := &inbox{conn: conn}
	defer in.closeFiles()
	buffer := bufio.NewReaderSize(in, maxLine)
	for {
		r, err := readRequest(buffer)
		var bad badRequestError
		switch {
		case errors.As(err, &bad):
			buffer.Discard(buffer.Buffered())
			in.closeFiles()
			// No JSON, as with the real one: a line break in a string.
			write(conn, http.StatusBadRequest, fmt.Sprintf("{ \"error\": \"%s\nNothing before it is answered.\" }", err))
			continue
		case err != nil:
			return
		}
		r.files, in.files = in.files, nil
		s.handle(conn, r)
		r.closeFiles()
	}
}

// handle waits for its turn. Whoever has gone by then is not served.
func (s *server) handle(conn *net.UnixConn, r *request) {
	s.turn.Lock()
	defer s.turn.Unlock()
	if hungUp(conn) {
		return
	}
	call, _ := strings.CutPrefix(r.path, apiPath)
	knobs := s.vmm.knobs()
	if answer, ok := knobs.Answer[call]; ok {
		answer.send(conn)
		return
	}
	status, body := s.vmm.carryOut(r, call, knobs)
	if s.vmm.hasDied() {
		return
	}
	write(conn, status, body)
	s.vmm.answered()
}

// receive reads what has come, and the files with it.
func receive(conn *net.UnixConn, data []byte) (int, []*os.File, error) {
	const most = 253 // SCM_MAX_FD of the kernel's include/net/scm.h
	oob := make([]byte, unix.CmsgSpace(most*4))
	n, oobn, _, _, err := conn.ReadMsgUnix(data, oob)
	if err != nil || oobn == 0 {
		return n, nil, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return 0, nil, err
	}
	var files []*os.File
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return n, files, nil
}

// hungUp tells whether the other side has closed the connection, or its half.
func hungUp(conn *net.UnixConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = raw.Control(func(fd uintptr) {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		_, err := unix.Poll(poll, 0)
		gone = err == nil && poll[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
	})
	return gone || err != nil
}

// write sends an answer in the real one's form: no reason after the status, no
// length where there can be no body.
func write(conn *net.UnixConn, status int, body string) {
	head := fmt.Sprintf("HTTP/1.1 %d \r\nServer: Cloud Hypervisor API\r\nConnection: keep-alive\r\n", status)
	if status != http.StatusNoContent {
		head += fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	conn.Write([]byte(head + "\r\n" + body)) // the client may have gone
}

func (a Answer) send(conn *net.UnixConn) {
	body := a.Body
	if body != "" && a.Size > len(body) {
		body = strings.Repeat(body, a.Size/len(body)+1)[:a.Size]
	}
	switch {
	case a.Hang:
	case a.Raw:
		conn.Write([]byte(body))
	case a.Status == 0:
		write(conn, http.StatusOK, body)
	default:
		write(conn, a.Status, body)
	}
}

// asJSON is a value as a body.
func asJSON(value any) (string, error) {
	data, err := json.Marshal(value)
	return string(data), err
}
