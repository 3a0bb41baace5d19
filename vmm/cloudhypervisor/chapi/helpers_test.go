package chapi_test

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/vmlet/vmlet/test/suites"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// patience bounds what a test waits for something that does happen.
const patience = 30 * time.Second

func testContext(t testing.TB) context.Context {
	ctx, cancel := suites.Patience(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// exchange is one connection as the other side saw it.
type exchange struct {
	request []byte
	files   []*os.File
	conn    *net.UnixConn
}

// listen makes a socket on which answer is called for each connection, in a
// goroutine of its own, and a client of it.
func listen(t testing.TB, answer func(*net.UnixConn), options ...chapi.Option) *chapi.Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "api")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.AcceptUnix()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				answer(conn)
			}()
		}
	}()
	return chapi.New(dialer(path), options...)
}

func dialer(path string) chapi.Dialer {
	return func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}
}

// replying answers each request with the same bytes and hands it on.
func replying(t testing.TB, reply string, options ...chapi.Option) (*chapi.Client, <-chan exchange) {
	t.Helper()
	seen := make(chan exchange, 16)
	return listen(t, func(conn *net.UnixConn) {
		e, err := receive(conn)
		if err != nil {
			t.Errorf("request: %v", err)
			return
		}
		io.WriteString(conn, reply)
		seen <- e
	}, options...), seen
}

// receive reads one whole request as the VMM's server does: 1,024 bytes at a time,
// with whatever files come along. It fails if anything is behind the request.
func receive(conn *net.UnixConn) (exchange, error) {
	e := exchange{conn: conn}
	buffer, oob := make([]byte, 1024), make([]byte, syscall.CmsgSpace(253*4))
	for {
		n, oobn, _, _, err := conn.ReadMsgUnix(buffer, oob)
		if err != nil || n == 0 {
			return e, fmt.Errorf("after %d bytes: %w", len(e.request), err)
		}
		e.request = append(e.request, buffer[:n]...)
		files, err := received(oob[:oobn])
		if err != nil {
			return e, err
		}
		e.files = append(e.files, files...)
		if whole, err := complete(e.request); whole || err != nil {
			return e, err
		}
	}
}

func received(oob []byte) ([]*os.File, error) {
	messages, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for _, m := range messages {
		fds, err := syscall.ParseUnixRights(&m)
		if err != nil {
			return nil, err
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), fmt.Sprintf("received-%d", fd)))
		}
	}
	return files, nil
}

// complete parses a request with net/http, which did not make it.
func complete(b []byte) (bool, error) {
	head := bytes.Index(b, []byte("\r\n\r\n"))
	if head < 0 {
		return false, nil
	}
	r := bufio.NewReader(bytes.NewReader(b))
	request, err := http.ReadRequest(r)
	if err != nil {
		return false, err
	}
	if got := int64(len(b) - head - 4); got != request.ContentLength {
		if got > request.ContentLength {
			return false, fmt.Errorf("%d bytes behind a request", got-request.ContentLength)
		}
		return false, nil
	}
	return true, nil
}

// response is one with a body as the VMM sends it.
func response(status int, body string) string {
	return fmt.Sprintf("HTTP/1.1 %d \r\nServer: Cloud Hypervisor API\r\nConnection: keep-alive\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
}

// noContent is the VMM's reply to what has no answer.
const noContent = "HTTP/1.1 204 \r\nServer: Cloud Hypervisor API\r\nConnection: keep-alive\r\n\r\n"

func compareGolden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("differs from %s (-update writes it):\n%s", path, got)
	}
}

func pointer[T any](v T) *T { return &v }
