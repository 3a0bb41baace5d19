package filesocket

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// serve hands out what open returns until the test ends.
func serve(t *testing.T, path string, open func() (*os.File, error)) (stop func()) {
	t.Helper()
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- Serve(ctx, l, open) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func content(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "content")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReceive(t *testing.T) {
	socket, path := filepath.Join(t.TempDir(), "s"), content(t, "what is in it")
	serve(t, socket, func() (*os.File, error) { return os.Open(path) })
	for range 2 {
		f, err := Receive(t.Context(), socket)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		// Another receiver's reading, and its locks, are its own.
		if text, err := io.ReadAll(f); err != nil || string(text) != "what is in it" {
			t.Errorf("%q, %v", text, err)
		}
		lock := unix.Flock_t{Type: unix.F_WRLCK, Len: 1}
		if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock); err != nil || lock.Type != unix.F_UNLCK {
			t.Errorf("somebody has a lock on it: %+v, %v", lock, err)
		}
		if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_RDLCK, Start: 1, Len: 1}); err != nil {
			t.Error(err)
		}
		if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("it stays open over an exec: %#x, %v", flags, err)
		}
	}
}

func TestFault(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	serve(t, socket, func() (*os.File, error) { return nil, errors.New("has no file" + strings.Repeat(" x", maxReply)) })
	_, err := Receive(t.Context(), socket)
	var fault *Fault
	if !errors.As(err, &fault) || !strings.HasPrefix(fault.Text, "has no file x") || len(fault.Text) != maxReply {
		t.Errorf("%.100v", err)
	}
}

// TestFaultIsPrintable: names of files in an image are in it.
func TestFaultIsPrintable(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	serve(t, socket, func() (*os.File, error) { return nil, errors.New("found: a\x1b[2J\nvolume root: é\xff") })
	_, err := Receive(t.Context(), socket)
	if want := "found: a?[2J?volume root: é?"; err == nil || err.Error() != want {
		t.Errorf("error %q, want %q", err, want)
	}
}

// TestWaits: containers start in any order, and one that is started again has another
// listener at the same path.
func TestWaits(t *testing.T) {
	socket, path := filepath.Join(t.TempDir(), "s"), content(t, "x")
	open := func() (*os.File, error) { return os.Open(path) }
	serve(t, socket, open)() // one that has ended leaves its socket behind
	type result struct {
		f   *os.File
		err error
	}
	results := make(chan result)
	go func() {
		f, err := Receive(t.Context(), socket)
		results <- result{f, err}
	}()
	serve(t, socket, open)
	r := <-results
	if r.err != nil {
		t.Fatal(r.err)
	}
	r.f.Close()
}

func TestNobodyListens(t *testing.T) {
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, errors.New("it has taken too long"))
	defer cancel()
	if _, err := Receive(ctx, filepath.Join(t.TempDir(), "s")); err == nil || !strings.Contains(err.Error(), "it has taken too long") {
		t.Errorf("%v", err)
	}
}

// TestHostile: what is no plain file that can only be read is not taken, and whoever does not
// answer is not waited for.
func TestHostile(t *testing.T) {
	path := content(t, "x")
	for name, test := range map[string]struct {
		open func() (*os.File, error)
		want string
	}{
		"writable":  {func() (*os.File, error) { return os.OpenFile(path, os.O_RDWR, 0) }, "reading only"},
		"path only": {func() (*os.File, error) { return os.OpenFile(path, unix.O_PATH, 0) }, "reading only"},
		"folder":    {func() (*os.File, error) { return os.Open(filepath.Dir(path)) }, "no regular file"},
		"device":    {func() (*os.File, error) { return os.Open("/dev/null") }, "no regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "s")
			serve(t, socket, test.open)
			if _, err := Receive(t.Context(), socket); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
	t.Run("silent", func(t *testing.T) {
		socket := filepath.Join(t.TempDir(), "s")
		l, err := Listen(socket)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			conn, err := l.AcceptUnix()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			cancel(errors.New("enough"))
			<-t.Context().Done()
		}()
		if _, err := Receive(ctx, socket); err == nil || !strings.Contains(err.Error(), "enough") {
			t.Errorf("%v", err)
		}
	})
}

// TestOtherUser: neither side has to do with another user's process.
func TestOtherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to become another user")
	}
	dir := t.TempDir()
	for d := dir; d != os.TempDir(); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	socket, path := filepath.Join(dir, "s"), content(t, "x")
	opened := false
	serve(t, socket, func() (*os.File, error) { opened = true; return os.Open(path) })
	if err := os.Chmod(socket, 0o777); err != nil {
		t.Fatal(err)
	}
	err := asOther(func() error {
		conn, err := net.DialUnix(network, nil, &net.UnixAddr{Name: socket, Net: network})
		if err != nil {
			return err
		}
		defer conn.Close()
		if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
			return errors.New("something came")
		}
		return nil
	})
	if err != nil || opened {
		t.Errorf("%v, opened: %v", err, opened)
	}
	var theirs *net.UnixListener
	err = asOther(func() (err error) {
		theirs, err = Listen(filepath.Join(dir, "theirs"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	// So that it fails, and doesn't hang, where no user is asked for.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := Receive(ctx, filepath.Join(dir, "theirs")); err == nil || !strings.Contains(err.Error(), "user 954321") {
		t.Errorf("%v", err)
	}
}

// asOther runs f on a thread of another user, which is not used again.
func asOther(f func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, 954321, 954321, 954321); errno != 0 {
			result <- errno
			return
		}
		result <- f()
	}()
	return <-result
}
