package shim

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pair returns two ends of a socket.
func pair(t testing.TB) (*net.UnixConn, *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "")
		conn, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		conn.SetDeadline(time.Now().Add(time.Minute))
		ends[i] = conn.(*net.UnixConn)
	}
	return ends[0], ends[1]
}

func tempFile(t *testing.T, content string) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.WriteString(content); err != nil {
		t.Fatal(err)
	}
	return f
}

// Files stay with their messages, also if several messages are read at once.
func TestFilesStayWithTheirMessages(t *testing.T) {
	a, b := pair(t)
	from, to := NewWire(a), NewWire(b)
	messages := [][]string{nil, {"one"}, nil, {"two", "three"}, {"four"}, nil}
	for i, contents := range messages {
		var files []*os.File
		for _, c := range contents {
			files = append(files, tempFile(t, c))
		}
		if err := from.Send(Request{ID: uint64(i)}, files...); err != nil {
			t.Fatal(err)
		}
	}
	from.Close()
	for i, contents := range messages {
		var r Request
		files, err := to.Receive(&r)
		if err != nil || r.ID != uint64(i) || len(files) != len(contents) {
			t.Fatalf("message %d: %+v with %d files, %v", i, r, len(files), err)
		}
		for j, f := range files {
			got := make([]byte, len(contents[j]))
			if _, err := f.ReadAt(got, 0); err != nil || string(got) != contents[j] {
				t.Errorf("message %d, file %d: %q, %v", i, j, got, err)
			}
			if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0); flags&unix.FD_CLOEXEC == 0 || err != nil {
				t.Errorf("message %d, file %d would be inherited", i, j)
			}
			f.Close()
		}
	}
	if _, err := to.Receive(new(Request)); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

func TestLargeMessage(t *testing.T) {
	a, b := pair(t)
	text := strings.Repeat("x", 3<<20)
	sent := make(chan error, 1)
	go func() { sent <- NewWire(a).Send(text) }()
	var got string
	if _, err := NewWire(b).Receive(&got); err != nil || got != text {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if err := NewWire(a).Send(strings.Repeat("x", MaxMessage)); !errors.Is(err, ErrMessage) {
		t.Errorf("error %v", err)
	}
}

func TestHostilePeer(t *testing.T) {
	for name, send := range map[string]func(c *net.UnixConn){
		"announces 4 GiB":  func(c *net.UnixConn) { c.Write([]byte{0xff, 0xff, 0xff, 0xff}) },
		"no JSON":          func(c *net.UnixConn) { c.Write([]byte{0, 0, 0, 3, 'a', 'b', 'c'}) },
		"breaks off":       func(c *net.UnixConn) { c.Write([]byte{0, 0, 1, 0, '{'}) },
		"breaks off early": func(c *net.UnixConn) { c.Write([]byte{0, 0}) },
		"too many files": func(c *net.UnixConn) {
			fds := make([]int, MaxFiles+1)
			c.WriteMsgUnix([]byte{0, 0, 0, 2}, unix.UnixRights(fds...), nil)
		},
		"files with each byte": func(c *net.UnixConn) {
			for _, b := range []byte{0, 0, 0, 2} {
				c.WriteMsgUnix([]byte{b}, unix.UnixRights(make([]int, MaxFiles/2)...), nil)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := openFiles(t)
			a, b := pair(t)
			send(a)
			a.Close()
			if _, err := NewWire(b).Receive(new(Request)); !errors.Is(err, ErrMessage) {
				t.Errorf("error %v", err)
			}
			b.Close()
			if after := openFiles(t); after != before {
				t.Errorf("%d files are open, %d were before", after, before)
			}
		})
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

// byteSource is a frameSource without files.
type byteSource struct{ io.Reader }

func (s byteSource) readRights(b []byte) (int, []*os.File, error) {
	n, err := s.Read(b)
	return n, nil, err
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte{0, 0, 0, 2, '{', '}'})
	f.Add([]byte{0, 1, 0, 0})
	f.Add([]byte{0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		body, _, err := readFrame(byteSource{r}, func(size int) error { return checkSize(size, MaxMessage) })
		if err != nil {
			if err != io.EOF && !errors.Is(err, ErrMessage) {
				t.Errorf("error %v", err)
			}
			return
		}
		if size := binary.BigEndian.Uint32(b); int(size) != len(body) || !bytes.Equal(body, b[4:4+size]) {
			t.Errorf("%d bytes of %d", len(body), size)
		}
		if r.Len() != len(b)-4-len(body) {
			t.Error("read beyond the frame")
		}
	})
}

// What a peer has sent before it left is not lost to one who writes to it.
func TestReceiveAfterSendFailed(t *testing.T) {
	a, b := pair(t)
	if err := NewWire(a).Send(Request{ID: 1, Op: OpCommit}); err != nil {
		t.Fatal(err)
	}
	a.Close()
	w := NewWire(b)
	if err := w.Send(Message{ID: 7}); err == nil {
		t.Error("sent to nobody")
	}
	var r Request
	if _, err := w.Receive(&r); err != nil || r.Op != OpCommit {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := w.Receive(&r); err != io.EOF {
		t.Errorf("error %v", err)
	}
}
