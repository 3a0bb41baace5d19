package unixsocket

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

func TestPeer(t *testing.T) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	cred, err := Peer(conn)
	if err != nil || int(cred.Pid) != os.Getpid() || int(cred.Uid) != os.Getuid() {
		t.Errorf("%+v, %v", cred, err)
	}
	conn.Close()
	if _, err := Peer(conn); err == nil {
		t.Error("of a closed connection")
	}
}

func TestWithDescriptors(t *testing.T) {
	a, b, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	var got []int
	if err := WithDescriptors([]*os.File{a, b}, func(fds []int) { got = append(got, fds...) }); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0] != int(a.Fd()) || got[1] != int(b.Fd()) {
		t.Errorf("%v", got)
	}
	a.Close()
	called := false
	if err := WithDescriptors([]*os.File{b, a}, func([]int) { called = true }); err == nil || called {
		t.Errorf("a closed file: %v, called %v", err, called)
	}
}
