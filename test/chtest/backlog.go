package chtest

import (
	"io"
	"net"
	"sync"
	"syscall"
)

// backlog writes to whoever is there, never waiting, and keeps the end of what
// could not be written.
type backlog struct {
	mu   sync.Mutex
	out  rawWriter
	kept []byte
}

// rawWriter is a connection or a file that can be written without waiting.
type rawWriter interface {
	io.Closer
	syscall.Conn
}

const backlogSize = 1 << 20

func (b *backlog) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kept = append(b.kept, p...)
	b.flush()
	b.kept = b.kept[max(0, len(b.kept)-backlogSize):]
	return len(p), nil
}

func (b *backlog) flush() {
	for len(b.kept) > 0 && b.out != nil {
		n := tryWrite(b.out, b.kept)
		if n <= 0 {
			return
		}
		b.kept = b.kept[n:]
	}
}

// attach makes a connection the one that is written to, and ends the one before.
func (b *backlog) attach(conn *net.UnixConn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.out != nil {
		b.out.Close()
	}
	b.out = nil
	if conn != nil {
		b.out = conn
		b.flush()
	}
}

func (b *backlog) detach(conn *net.UnixConn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	conn.Close()
	if b.out == rawWriter(conn) {
		b.out = nil
	}
}

// tryWrite writes what can be written at once.
func tryWrite(to syscall.Conn, p []byte) int {
	raw, err := to.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	raw.Write(func(fd uintptr) bool {
		n, _ = syscall.Write(int(fd), p) // -1 if it would wait, or nobody is there
		return true
	})
	return n
}
