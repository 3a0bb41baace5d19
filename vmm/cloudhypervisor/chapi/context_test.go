package chapi_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
)

// silent takes requests and answers none until the test ends. What came is told.
func silent(t *testing.T, options ...chapi.Option) (*chapi.Client, <-chan exchange) {
	t.Helper()
	seen, over := make(chan exchange, 16), make(chan struct{})
	t.Cleanup(func() { close(over) })
	return listen(t, func(conn *net.UnixConn) {
		if e, err := receive(conn); err == nil {
			seen <- e
		}
		<-over
	}, options...), seen
}

// TestCancelled: the request is out and no reply comes.
func TestCancelled(t *testing.T) {
	client, seen := silent(t)
	ctx, cancel := context.WithCancel(testContext(t))
	go func() {
		<-seen
		cancel()
	}()
	err := client.Boot(ctx)
	if !errors.Is(err, context.Canceled) || !errors.Is(err, chapi.ErrOutcomeUnknown) || errors.Is(err, chapi.ErrNotSent) || errors.Is(err, chapi.ErrDisconnected) {
		t.Error(err)
	}
	t.Log(err)
}

// TestTimeout: a context without an end is given one.
func TestTimeout(t *testing.T) {
	client, _ := silent(t, chapi.WithTimeout(50*time.Millisecond))
	err := client.Boot(context.Background())
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, chapi.ErrOutcomeUnknown) {
		t.Error(err)
	}
}

func TestCancelledBefore(t *testing.T) {
	client := chapi.New(func(context.Context) (net.Conn, error) { t.Error("connected"); return nil, io.EOF })
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := client.Boot(ctx); !errors.Is(err, context.Canceled) || !errors.Is(err, chapi.ErrNotSent) {
		t.Error(err)
	}
}

// TestCancelledInDial: the context's end is the cause, whatever the dialer says.
func TestCancelledInDial(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	client := chapi.New(func(ctx context.Context) (net.Conn, error) {
		cancel()
		return nil, errors.New("some error")
	})
	if err := client.Boot(ctx); !errors.Is(err, context.Canceled) || !errors.Is(err, chapi.ErrNotSent) || errors.Is(err, chapi.ErrDisconnected) {
		t.Error(err)
	}
}

// TestTurns: calls go one after the other, and one that waits can be given up.
func TestTurns(t *testing.T) {
	client, seen := silent(t)
	ctx, cancel := context.WithCancel(testContext(t))
	first := make(chan error, 1)
	go func() { first <- client.Boot(ctx) }()
	<-seen
	waiting, giveUp := context.WithTimeout(testContext(t), 20*time.Millisecond)
	defer giveUp()
	err := client.Pause(waiting)
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, chapi.ErrNotSent) {
		t.Error(err)
	}
	if len(seen) > 0 {
		t.Error("a second request was sent while the first was under way")
	}
	cancel()
	if err := <-first; !errors.Is(err, chapi.ErrOutcomeUnknown) {
		t.Error(err)
	}
}

// TestConcurrent: many callers, never two requests at a time.
func TestConcurrent(t *testing.T) {
	var now atomic.Int32
	client := listen(t, func(conn *net.UnixConn) {
		if now.Add(1) > 1 {
			t.Error("two at a time")
		}
		if _, err := receive(conn); err != nil {
			t.Error(err)
		}
		now.Add(-1)
		io.WriteString(conn, noContent)
	})
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if err := client.Pause(testContext(t)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// TestSlowReply: a reply that comes byte by byte is whole in the end.
func TestSlowReply(t *testing.T) {
	client := listen(t, func(conn *net.UnixConn) {
		if _, err := receive(conn); err != nil {
			t.Error(err)
		}
		for _, b := range []byte(response(200, `{"version":"v53.0"}`)) {
			conn.Write([]byte{b})
		}
		io.Copy(io.Discard, conn) // kept open: the client doesn't wait for the end
	})
	if v, err := client.Ping(testContext(t)); err != nil || v.Version != "v53.0" {
		t.Errorf("%+v, %v", v, err)
	}
}

// TestDeath: the VMM goes with a request under way.
func TestDeath(t *testing.T) {
	client := listen(t, func(conn *net.UnixConn) {
		conn.Read(make([]byte, 10)) // the rest is unread, so the end is a reset
	})
	err := client.Boot(testContext(t))
	if !errors.Is(err, chapi.ErrDisconnected) || !errors.Is(err, chapi.ErrOutcomeUnknown) || !(errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF)) {
		t.Error(err)
	}
	t.Log(err)
}

// TestFullServer: it answers and hangs up before it has read anything.
func TestFullServer(t *testing.T) {
	near, far, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(far, "HTTP/1.1 503\r\nConnection: close\r\nContent-Length: 40\r\n\r\n{ \"error\": \"Too many open connections\" }")
	far.Close()
	client := chapi.New(func(context.Context) (net.Conn, error) { return near, nil })
	if err := client.Boot(testContext(t)); !errors.Is(err, chapi.ErrBusy) {
		t.Error(err)
	}
}

// TestNeverRead: a request that can't be sent, for the other side takes nothing.
func TestNeverRead(t *testing.T) {
	near, far, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	near.SetWriteBuffer(1)
	client := chapi.New(func(context.Context) (net.Conn, error) { return near, nil }, chapi.WithTimeout(50*time.Millisecond))
	_, err = client.AddDisk(context.Background(), chapi.Disk{Path: "/" + strings.Repeat("x", 50_000)})
	if !errors.Is(err, chapi.ErrNotSent) || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, chapi.ErrOutcomeUnknown) {
		t.Error(err)
	}
}

// TestBacklog: nobody accepts, and the kernel takes no more connections.
func TestBacklog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	waiting, err := net.Dial("unix", path) // the one that there is room for
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	client := chapi.New(dialer(path), chapi.WithTimeout(100*time.Millisecond))
	err = client.Boot(context.Background())
	if !errors.Is(err, chapi.ErrBusy) && !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, chapi.ErrNotSent) {
		t.Error(err)
	}
	t.Log(err)
}

// pair makes two connected sockets.
func pair() (near, far *net.UnixConn, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	var conns [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		conn, err := net.FileConn(f)
		f.Close()
		if err != nil {
			return nil, nil, err
		}
		conns[i] = conn.(*net.UnixConn)
	}
	return conns[0], conns[1], nil
}
