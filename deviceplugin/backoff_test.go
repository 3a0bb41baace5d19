package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmlet/vmlet/internal/inotify"
	"golang.org/x/sys/unix"
)

func TestBackoff(t *testing.T) {
	b := newBackoff()
	for i, c := range []struct {
		err    error
		lasted time.Duration
		want   time.Duration
	}{
		{errNoKubelet, 0, absentRetry},
		{errSilent, 0, firstRetry},
		{errSilent, 0, 2 * firstRetry},
		{errWiped, 0, 4 * firstRetry},
		{errWiped, 1, 0},
		{errDropped, 1, firstRetry},
		{errDropped, 1, 2 * firstRetry},
		{errDropped, held, firstRetry},
		{errNotHeard, 0, 2 * firstRetry},
	} {
		if got := b.after(c.err, c.lasted); got != c.want {
			t.Errorf("%d: %v, want %v", i, got, c.want)
		}
	}
	for range 100 {
		if got := b.after(errNotHeard, 0); got > lastRetry || b.patience > lastPatience {
			t.Fatalf("%v, %v", got, b.patience)
		}
	}
}

// counter is a log that counts what is said of attempts, by level.
type counter struct {
	slog.Handler
	mu     *sync.Mutex
	levels map[slog.Level]int
}

func newCounter() counter {
	return counter{slog.DiscardHandler, new(sync.Mutex), map[slog.Level]int{}}
}

func (c counter) Enabled(context.Context, slog.Level) bool { return true }
func (c counter) WithAttrs([]slog.Attr) slog.Handler       { return c }

func (c counter) Handle(_ context.Context, r slog.Record) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if strings.HasPrefix(r.Message, "not registered") {
		c.levels[r.Level]++
	}
	return nil
}

func (c counter) count(levels ...slog.Level) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for level, said := range c.levels {
		if len(levels) == 0 || slices.Contains(levels, level) {
			n += said
		}
	}
	return n
}

// refusing is a folder with the socket of a kubelet that is down.
func refusing(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	listenAndLeave(t, filepath.Join(folder, KubeletSocket))
	return folder
}

func listenAndLeave(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
}

// TestKubeletDown: while the kubelet's socket refuses, what happens in the folder
// leads to no attempt, and attempts make nothing happen there. Time is made up:
// none passes but where the test sleeps.
func TestKubeletDown(t *testing.T) {
	folder := refusing(t)
	begin := changedAt(t, folder)
	synctest.Test(t, func(t *testing.T) {
		const resources = 5
		log := newCounter()
		var kinds []Kind
		for i := range resources {
			kinds = append(kinds, named(fmt.Sprintf("example.org/r%d", i)))
		}
		m, err := NewManager(Config{Folder: folder, Log: slog.New(log)}, kinds)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for _, r := range m.runners {
			r.server.Update([]Device{{ID: "d", Grant: &Grant{}}})
			all.Go(func() { r.server.Run(ctx) })
		}
		synctest.Wait()
		for range 100 { // what the watch of the folder does with each event
			m.wake()
			synctest.Wait()
		}
		if got := log.count(); got != resources {
			t.Errorf("%d attempts by %d resources without any time, and 100 events", got, resources)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if got, most := log.count(), resources*(int(time.Hour/lastRetry)+10); got > most || got < most-resources*20 {
			t.Errorf("%d attempts in an hour, want about %d", got, most)
		}
		if now := changedAt(t, folder); now != begin {
			t.Error("attempts made files in the kubelet's folder")
		}
		if warned, told := log.count(slog.LevelWarn), log.count(slog.LevelInfo); warned != 1 || told != resources {
			t.Errorf("%d warnings and %d notes, want 1 and %d", warned, told, resources)
		}

		// Another kubelet's socket is tried at once, and still nothing else.
		before := log.count()
		if err := os.Remove(filepath.Join(folder, KubeletSocket)); err != nil {
			t.Fatal(err)
		}
		m.wake()
		synctest.Wait()
		listenAndLeave(t, filepath.Join(folder, KubeletSocket))
		for range 10 {
			m.wake()
			synctest.Wait()
		}
		if got := log.count() - before; got != 2*resources {
			t.Errorf("%d attempts by %d resources when the socket went and came", got, resources)
		}
		cancel()
		all.Wait()
	})
}

// changedAt is when something was made or removed in a folder last.
func changedAt(t *testing.T, folder string) unix.Timespec {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(folder, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ctim
}

// named is a kind whose devices a test sets by itself.
type named string

func (n named) Resource() string            { return string(n) }
func (named) Interests() []inotify.Interest { return nil }
func (named) Find(context.Context) []Device { return nil }

// TestSaidOnce: a kubelet that registers and hangs up again and again is not told
// of with each attempt; one that has held a registration is.
func TestSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newCounter()
		kubelet := fileID{inode: 1}
		s := NewServer("example.org/r", t.TempDir(), "rw", slog.New(log))
		for range 1000 {
			s.succeeded(kubelet)
			s.failed(errDropped)
		}
		if warned, told := log.count(slog.LevelWarn), log.count(slog.LevelInfo); warned != 1 || told != 1 {
			t.Errorf("%d warnings and %d notes of 1000 attempts", warned, told)
		}
		s.succeeded(kubelet)
		time.Sleep(held)
		if lasted := s.failed(errDropped); lasted != held || log.count(slog.LevelInfo) != 2 {
			t.Errorf("it held for %v, and %d notes", lasted, log.count(slog.LevelInfo))
		}
		s.succeeded(kubelet)
		time.Sleep(time.Hour)
		if lasted := s.failed(errNotHeard); lasted != 0 || !errors.Is(s.Status().Err, errNotHeard) {
			t.Errorf("nobody asked for its devices for %v: %v", lasted, s.Status().Err)
		}
		// Restarts, however quick: each is told, and none is warned of.
		before := log.count(slog.LevelInfo)
		for range uint64(2 * manyFailures) {
			kubelet.inode++
			s.succeeded(kubelet)
			s.failed(errDropped)
		}
		if warned, told := log.count(slog.LevelWarn), log.count(slog.LevelInfo)-before; warned != 1 || told != 2*manyFailures {
			t.Errorf("%d warnings and %d notes of %d restarts", warned-1, told, 2*manyFailures)
		}
	})
}
