package probe

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/test/guest"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/qemu/qemutest"
	"github.com/vmlet/vmlet/vmm/qemu/qmp"
	"github.com/vmlet/vmlet/vmm/qemu/wire"

	"golang.org/x/sys/unix"
)

// qemuVariable lists the QEMU binaries to test with, by name or path, with commas
// or colons between them.
const qemuVariable = "VMLET_TEST_QEMU"

// forEachQEMU runs a test with every QEMU there is, or skips it.
func forEachQEMU(t *testing.T, test func(t *testing.T, q *Program, info vmm.Info)) {
	names := []string{"qemu-system-x86_64"}
	if newer, err := guest.QEMU10(); err == nil {
		names = append(names, newer)
	}
	if list := os.Getenv(qemuVariable); list != "" {
		names = strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ':' })
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			binary, err := exec.LookPath(name)
			if err != nil {
				t.Skipf("needs a real QEMU: %v; name one or more in %s", err, qemuVariable)
			}
			q := New(Config{Binary: binary, Hypervisors: qemutest.Hypervisors("")})
			info, err := q.Info(testContext(t))
			if err != nil {
				t.Fatal(err)
			}
			test(t, q, info)
		})
	}
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// machine is a QEMU that was started by a plan, as a shim would.
type machine struct {
	t       *testing.T
	cmd     *exec.Cmd
	dir     string
	console *os.File // the test's end
	memory  *os.File
	exited  chan struct{} // closed when QEMU has ended
	stderr  bytes.Buffer  // to be read only then
}

// resources stand for what a plan names and this machine doesn't have.
type resources struct {
	files  map[string]string // by the plan's path
	memory *os.File          // instead of a new one
}

// launch starts a plan's QEMU.
func launch(t *testing.T, p *plan.Plan, r resources) *machine {
	t.Helper()
	m := &machine{t: t, dir: t.TempDir(), memory: r.memory, exited: make(chan struct{})}
	m.cmd = exec.Command(p.Program, p.Args...)
	m.cmd.Env = append(os.Environ(), p.Env...)
	for _, f := range p.Files {
		file := m.open(f, p, r)
		defer file.Close()
		m.cmd.ExtraFiles = append(m.cmd.ExtraFiles, file)
	}
	m.cmd.Stderr = &m.stderr
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		m.cmd.Wait()
		close(m.exited)
	}()
	t.Cleanup(func() {
		m.cmd.Process.Kill()
		<-m.exited
		if t.Failed() {
			t.Logf("QEMU said: %s", m.stderr.String())
		}
	})
	return m
}

func (m *machine) open(f plan.File, p *plan.Plan, r resources) *os.File {
	m.t.Helper()
	switch f.Kind {
	case plan.FileListen:
		return m.listen(f.Path)
	case plan.FileConsole:
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		m.check(err)
		m.console = os.NewFile(uintptr(fds[0]), "console")
		m.t.Cleanup(func() { m.console.Close() })
		return os.NewFile(uintptr(fds[1]), "console")
	case plan.FileMemory:
		if m.memory == nil {
			m.memory = memoryFile(m.t, int64(p.Memory.Size))
		}
		fd, err := unix.Dup(int(m.memory.Fd()))
		m.check(err)
		return os.NewFile(uintptr(fd), "memory")
	case plan.FileConnect:
		conn, err := net.Dial("unix", r.files[f.Path])
		m.check(err)
		defer conn.Close()
		file, err := conn.(*net.UnixConn).File()
		m.check(err)
		return file
	case plan.FilePath, plan.FileReceived:
		path, known := r.files[cmp.Or(f.Path, f.Field)]
		if !known {
			m.t.Fatalf("%s: the test has nothing for %s", f.Field, f.Path)
		}
		mode := os.O_RDONLY
		if f.Write {
			mode = os.O_RDWR
		}
		if f.Direct {
			mode |= unix.O_DIRECT
		}
		file, err := os.OpenFile(path, mode, 0)
		m.check(err)
		return file
	}
	m.t.Fatalf("a file of kind %s", f.Kind)
	return nil
}

func (m *machine) listen(name string) *os.File {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(m.dir, name), Net: "unix"})
	m.check(err)
	listener.SetUnlinkOnClose(false)
	defer listener.Close()
	file, err := listener.File()
	m.check(err)
	return file
}

func memoryFile(t *testing.T, size int64) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "memory")
	if err == nil {
		err = f.Truncate(size)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func (m *machine) check(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// dial reaches the machine's sockets, as an agent's dialer does.
func (m *machine) dial(ctx context.Context, name string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", filepath.Join(m.dir, name))
}

// shim connects to the monitor that is the shim's.
func (m *machine) shim(ctx context.Context) *qmp.Client {
	m.t.Helper()
	conn, err := m.dial(ctx, wire.ShimMonitor)
	m.check(err)
	client, err := qmp.New(ctx, conn)
	if err != nil {
		m.cmd.Process.Kill()
		<-m.exited
		m.t.Fatalf("%v: %s", err, m.stderr.String())
	}
	m.t.Cleanup(func() { client.Close() })
	return client
}

// quit ends QEMU and returns what it complained of.
func (m *machine) quit(ctx context.Context, client *qmp.Client) string {
	m.t.Helper()
	if err := client.Execute(ctx, "quit", nil, nil); err != nil && !errors.Is(err, qmp.ErrDisconnected) {
		m.t.Fatal(err)
	}
	select {
	case <-m.exited:
	case <-ctx.Done():
		m.t.Fatal("QEMU doesn't end after quit")
	}
	return complaints(m.stderr.String())
}

// complaints leaves out what a QEMU says that was unpacked beside the machine's.
func complaints(stderr string) string {
	var lines []string
	for line := range strings.Lines(stderr) {
		if !strings.Contains(line, "module") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

func dupFile(t *testing.T, fd int) *os.File {
	t.Helper()
	again, err := unix.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(again), "again")
}
