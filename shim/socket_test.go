package shim

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/internal/unixsocket"
	"github.com/vmlet/vmlet/test/suites"
)

// consoleOf returns a console as a shim hands it out, its other end, and the shim's own
// descriptor of the client's end.
func consoleOf(t *testing.T) (conn, far net.Conn, kept *os.File) {
	t.Helper()
	far, kept, err := unixsocket.Pair("console")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close(); kept.Close() })
	c := answer(t, welcome, func(w *Wire, r Request) { w.Send(Message{ID: r.ID, Files: 1}, kept) })
	if conn, err = c.Console(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn, far, kept
}

// block makes the description that the client has a blocking one.
func block(t *testing.T, kept *os.File) {
	t.Helper()
	if err := unixsocket.WithDescriptors([]*os.File{kept}, func(fds []int) {
		if err := unix.SetNonblock(fds[0], false); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// TestSharedSocketCloses: a shim that clears O_NONBLOCK of what it has handed out does not keep
// the agent in a system call.
func TestSharedSocketCloses(t *testing.T) {
	conn, far, kept := consoleOf(t)
	block(t, kept)
	ended := make(chan error, 2)
	go func() {
		_, err := conn.Read(make([]byte, 1))
		ended <- err
	}()
	go func() {
		_, err := conn.Write(make([]byte, 64<<20))
		ended <- err
	}()
	if _, err := io.ReadFull(far, make([]byte, 1)); err != nil { // then it is being written
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- conn.Close() }()
	late := suites.After(t, time.Minute)
	for range 2 {
		select {
		case err := <-ended:
			if !errors.Is(err, net.ErrClosed) {
				t.Errorf("error %v, want that it is closed", err)
			}
		case <-late:
			far.Close() // which ends the calls
			t.Fatal("a call goes on though the connection was closed")
		}
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// TestSharedSocketDeadline: nor past a deadline.
func TestSharedSocketDeadline(t *testing.T) {
	conn, far, kept := consoleOf(t)
	block(t, kept)
	if err := conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := conn.Read(make([]byte, 1))
		ended <- err
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("error %v, want the deadline's", err)
		}
	case <-suites.After(t, time.Minute):
		far.Close()
		t.Fatal("it reads on though its time is over")
	}
}

// TestSharedSocketEnds: the end of what the other end sends is the end of reading, and more
// than a socket holds is written whole.
func TestSharedSocketEnds(t *testing.T) {
	conn, far, _ := consoleOf(t)
	suites.Bound(t, far, time.Minute)
	suites.Bound(t, conn, time.Minute)
	if _, can := conn.(interface{ CloseWrite() error }); can {
		t.Error("a console can be closed by half")
	}
	const size = 4 << 20
	got := make(chan int64, 1)
	go func() {
		n, _ := io.Copy(io.Discard, io.LimitReader(far, size))
		io.WriteString(far, "bye")
		far.Close()
		got <- n
	}()
	if n, err := conn.Write(make([]byte, size)); n != size || err != nil {
		t.Errorf("wrote %d, %v", n, err)
	}
	if b, err := io.ReadAll(conn); string(b) != "bye" || err != nil {
		t.Errorf("read %q, %v", b, err)
	}
	if n := <-got; n != size {
		t.Errorf("%d bytes came, want %d", n, size)
	}
	if _, err := conn.Write([]byte("x")); !errors.Is(err, unix.EPIPE) {
		t.Errorf("error %v after the peer has gone, want EPIPE", err)
	}
}

// handOver returns what fileConn makes of a connection.
func handOver(t *testing.T, conn net.Conn) net.Conn {
	t.Helper()
	file, err := conn.(interface{ File() (*os.File, error) }).File()
	conn.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	shared, err := fileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shared.Close() })
	suites.Bound(t, shared, time.Minute)
	return shared
}

// TestSharedTCPHalfCloses: who has said all that it has still hears the answer.
func TestSharedTCPHalfCloses(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		peer, err := listener.Accept()
		if err != nil {
			return
		}
		defer peer.Close()
		b, _ := io.ReadAll(peer)
		peer.Write(append(b, '!'))
	}()
	dialled, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn := handOver(t, dialled)
	if _, err := io.WriteString(conn, "all"); err != nil {
		t.Fatal(err)
	}
	if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(conn); string(b) != "all!" || err != nil {
		t.Errorf("read %q, %v", b, err)
	}
}

// TestSharedDatagrams: each is one read, and an empty one is no end.
func TestSharedDatagrams(t *testing.T) {
	peer, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	suites.Bound(t, peer, time.Minute)
	dialled, err := net.Dial("udp", peer.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn := handOver(t, dialled)
	for _, text := range []string{"one", "", "three"} {
		if n, err := conn.Write([]byte(text)); n != len(text) || err != nil {
			t.Fatalf("%q: wrote %d, %v", text, n, err)
		}
		b := make([]byte, 16)
		n, from, err := peer.ReadFrom(b)
		if err != nil || string(b[:n]) != text {
			t.Fatalf("%q came as %q, %v", text, b[:n], err)
		}
		if _, err := peer.WriteTo(b[:n], from); err != nil {
			t.Fatal(err)
		}
		if n, err = conn.Read(b); err != nil || string(b[:n]) != text {
			t.Errorf("%q came back as %q, %v", text, b[:n], err)
		}
	}
}
