package filesocket

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// take connects to the socket and takes the folder that it hands out.
func take(t *testing.T, taker *Taker, socket string) (*os.File, error) {
	t.Helper()
	conn, err := DialIn(t.Context(), filepath.Dir(socket), filepath.Base(socket))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return taker.Folder(t.Context(), conn, pod("a"), "the volume")
}

func TestTakeFolder(t *testing.T) {
	socket, folder := filepath.Join(t.TempDir(), "s"), t.TempDir()
	serve := serveAs(t, ServeToRoot)
	serve(socket, func() (*os.File, error) { return OpenFolder(folder) })
	f, err := take(t, new(Taker), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if want, err := os.Stat(folder); err != nil || !os.SameFile(got, want) {
		t.Errorf("another folder: %v, %v", got.Name(), err)
	}
	if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("it stays open over an exec: %#x, %v", flags, err)
	}
}

// serveAs is the function serve for another way to serve.
func serveAs(t *testing.T, with func(context.Context, *net.UnixListener, func() (*os.File, error)) error) func(string, func() (*os.File, error)) {
	return func(path string, open func() (*os.File, error)) {
		t.Helper()
		l, err := Listen(path)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- with(ctx, l, open) }()
		t.Cleanup(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestTakeRefuses what a call might wait at, or could not be saved to; and it closes that.
func TestTakeRefuses(t *testing.T) {
	folder := t.TempDir()
	file := content(t, "x")
	fifo := filepath.Join(folder, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	path := func(path string) func() (*os.File, error) {
		return func() (*os.File, error) {
			fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW, 0)
			return os.NewFile(uintptr(fd), path), err
		}
	}
	link := filepath.Join(folder, "link")
	if err := os.Symlink(folder, link); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		open func() (*os.File, error)
		want string
	}{
		"an open folder": {func() (*os.File, error) { return os.Open(folder) }, "the volume hands out a file that is open"},
		"an open file":   {func() (*os.File, error) { return os.Open(file) }, "the volume hands out a file that is open"},
		"a file":         {path(file), "the volume hands out something that is no folder"},
		"a FIFO":         {path(fifo), "the volume hands out something that is no folder"},
		"a link":         {path(link), "the volume hands out something that is no folder"},
		"words":          {func() (*os.File, error) { return nil, errors.New("is not\nthere") }, "is not?there"},
	} {
		t.Run(name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "s")
			serve(t, socket, test.open)
			taker := new(Taker)
			for range 3 { // a descriptor that is not given back would use it up
				f, err := take(t, taker, socket)
				if err == nil {
					f.Close()
				}
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Fatalf("error %v, want %q", err, test.want)
				}
				if unfit := new(*Unfit); errors.As(err, unfit) != (name != "words") {
					t.Errorf("error %#v: what is handed out is unfit, words are not", err)
				}
				for taker.begin(pod("a")) != nil { // the last one is still being closed
					time.Sleep(time.Millisecond)
				}
				taker.end(pod("a"))
			}
		})
	}
}

// TestTakeWaitsNotForEver: nobody keeps the taker with a connection at which nothing comes.
func TestTakeWaitsNotForEver(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := DialIn(t.Context(), filepath.Dir(socket), "s")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if _, err := new(Taker).Folder(ctx, conn, pod("a"), "the volume"); err == nil || !strings.Contains(err.Error(), "no answer: enough") {
		t.Errorf("error %v", err)
	}
}

// TestTakeIsBounded: file systems that don't answer cost so many threads and no more, and nobody else his place.
func TestTakeIsBounded(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	serve(t, socket, func() (*os.File, error) { return OpenFolder("/") })
	taker := new(Taker)
	begin := func(from Giver, want string) {
		t.Helper()
		if err := taker.begin(from); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Fatalf("%v: error %v, want %q", from, err, want)
		}
	}
	begin(pod("a"), "")
	if _, err := take(t, taker, socket); err == nil || !strings.Contains(err.Error(), "the last file of the pod is still being taken, or closed") {
		t.Errorf("a second file of a pod: error %v", err)
	}
	for n := 1; n < maxOfNamespace; n++ {
		begin(pod(strconv.Itoa(n)), "")
	}
	begin(pod("b"), "each of the last 4 files of pods of namespace ns")
	for n := range maxTaken - maxOfNamespace {
		begin(Giver{Namespace: strconv.Itoa(n), UID: "a"}, "")
	}
	begin(Giver{Namespace: "other", UID: "a"}, "each of the last 64 files of this node's pods")
	taker.end(pod("a"))
	begin(Giver{Namespace: "other", UID: "a"}, "")
	taker.end(Giver{Namespace: "other", UID: "a"})
	if f, err := take(t, taker, socket); err != nil {
		t.Errorf("a place was given back: %v", err)
	} else {
		f.Close()
	}
}

// pod is one of the namespace ns.
func pod(uid string) Giver { return Giver{Namespace: "ns", UID: uid} }

// TestDialInFollowsNothing: a folder that a pod writes to leads nowhere else.
func TestDialInFollowsNothing(t *testing.T) {
	outside, folder := filepath.Join(t.TempDir(), "s"), t.TempDir()
	serve(t, outside, func() (*os.File, error) { return OpenFolder("/") })
	for name, make := range map[string]func(string) error{
		"link": func(path string) error { return os.Symlink(outside, path) },
		"file": func(path string) error { return os.WriteFile(path, nil, 0o600) },
	} {
		if err := make(filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if conn, err := DialIn(ctx, folder, name); err == nil {
			conn.Close()
			t.Errorf("%s: a connection", name)
		}
	}
	if conn, err := DialIn(t.Context(), folder, "../"+filepath.Base(filepath.Dir(outside))+"/s"); err == nil {
		conn.Close()
		t.Error("a path: a connection")
	}
}
