package chapi_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/test/chtest"
	"github.com/vmlet/vmlet/test/guest"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
)

// rig is a VMM, the client that drives it, and its events.
type rig struct {
	t      *testing.T
	dir    string
	client *chapi.Client
	events *chapi.Events
	pid    int
	gone   func() // waits for its end

	// real is the VMM itself, and not what stands in for it. Its guest has no
	// drivers: what the stand-in's does with a balloon, this one doesn't.
	real bool
}

// maker makes one with what a test wants of a stand-in.
type maker func(t *testing.T, knobs chtest.Knobs) *rig

// withEach carries a test out with the stand-in, and with the real VMM where there
// is one.
func withEach(t *testing.T, test func(t *testing.T, make maker)) {
	t.Run("stand-in", func(t *testing.T) { test(t, newRig) })
	t.Run("real", func(t *testing.T) {
		program, err := exec.LookPath("cloud-hypervisor")
		if err != nil {
			t.Skipf("with the stand-in alone: %v", err)
		}
		kvm, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
		if err != nil {
			t.Skipf("with the stand-in alone: %v", err)
		}
		kvm.Close()
		test(t, func(t *testing.T, _ chtest.Knobs) *rig { return realRig(t, program) })
	})
}

func realRig(t *testing.T, program string) *rig {
	t.Helper()
	r := newFolder(t)
	r.real = true
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: r.path("api"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	listener.SetUnlinkOnClose(false)
	socket, err := listener.File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out.SetReadDeadline(time.Now().Add(patience))
	r.events = chapi.NewEvents(out, chapi.DefaultMaxEvent)
	cmd := exec.Command(program, "--api-socket", "fd=3", "--event-monitor", "fd=4")
	cmd.ExtraFiles = []*os.File{socket, in}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var words bytes.Buffer
	cmd.Stderr = &words
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.pid = cmd.Process.Pid
	over := make(chan struct{})
	go func() { cmd.Wait(); close(over) }()
	r.gone = func() { <-over }
	t.Cleanup(func() { cmd.Process.Kill(); <-over; out.Close(); t.Log(words.String()) })
	r.client = chapi.New(dialer(r.path("api")))
	return r
}

// newFolder has all that a VM needs.
func newFolder(t *testing.T) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "ch") // the names of sockets must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &rig{t: t, dir: dir}
	kernel, err := guest.PVH(guest.PVHOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.path("kernel"), kernel, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]int64{"disk": 1 << 20, "disk2": 1 << 20, "ram": ramSize} {
		if err := os.WriteFile(r.path(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(r.path(name), size); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// ramSize is the guest's, in bytes.
const ramSize = 32 << 20

func newRig(t *testing.T, knobs chtest.Knobs) *rig {
	t.Helper()
	r := newFolder(t)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: r.path("api"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	out, in := io.Pipe()
	queue := sink{make(chan []byte, 1000), make(chan struct{})}
	go queue.pass(in)
	r.events = chapi.NewEvents(out, chapi.DefaultMaxEvent)
	vmm := chtest.New(listener, chtest.Options{Knobs: func() chtest.Knobs { return knobs }, Events: queue})
	r.pid, r.gone = os.Getpid(), func() { <-vmm.Exited() }
	t.Cleanup(func() { vmm.Close(); close(queue.over); out.Close() })
	r.client = chapi.New(dialer(r.path("api")))
	return r
}

// sink is a pipe with room for all that a test's VMM has to tell, which doesn't
// wait for who reads it.
type sink struct {
	lines chan []byte
	over  chan struct{}
}

func (s sink) Write(p []byte) (int, error) {
	select {
	case s.lines <- bytes.Clone(p):
	case <-s.over:
	}
	return len(p), nil
}

func (s sink) pass(w io.WriteCloser) {
	defer w.Close()
	for {
		select {
		case line := <-s.lines:
			w.Write(line) // fails if nobody reads any more
		case <-s.over:
			return
		}
	}
}

func (r *rig) path(name string) string { return filepath.Join(r.dir, name) }

func (r *rig) config() *chapi.VMConfig {
	return &chapi.VMConfig{
		CPUs:    &chapi.CPUs{Boot: 1, Max: 3},
		Memory:  &chapi.Memory{Zones: []chapi.MemoryZone{{ID: "ram0", Size: ramSize, File: r.path("ram"), Shared: true}}},
		Payload: &chapi.Payload{Kernel: r.path("kernel"), Cmdline: "console=ttyS0"},
		Disks:   []chapi.Disk{{PCI: chapi.PCI{ID: "disk0"}, Path: r.path("disk"), Type: chapi.ImageRaw}},
		Balloon: &chapi.Balloon{PCI: chapi.PCI{ID: "balloon0"}},
		Serial:  &chapi.Console{Mode: chapi.ConsoleNull},
		Console: &chapi.Console{Mode: chapi.ConsoleOff},
	}
}

// must fails the test unless each step succeeds.
func (r *rig) must(steps ...func(context.Context) error) {
	r.t.Helper()
	for i, step := range steps {
		if err := step(testContext(r.t)); err != nil {
			r.t.Fatalf("step %d: %v", i, err)
		}
	}
}

func (r *rig) create(ctx context.Context) error { return r.client.Create(ctx, r.config()) }

func (r *rig) state() chapi.State {
	r.t.Helper()
	info, err := r.client.Info(testContext(r.t))
	if err != nil {
		r.t.Fatal(err)
	}
	return info.State
}

// until reads events until one has this name.
func (r *rig) until(name string) chapi.Event {
	r.t.Helper()
	for {
		event, err := r.events.Next()
		if err != nil {
			r.t.Fatalf("waiting for %s: %v", name, err)
		}
		if event.Name == name {
			return event
		}
	}
}

// taps are n taps, or for the stand-in anything that is open.
func (r *rig) taps(n int) []*os.File {
	r.t.Helper()
	if !r.real {
		return written(r.t, n)
	}
	var taps []*os.File
	for range n {
		file, err := os.OpenFile("/dev/net/tun", os.O_RDWR|syscall.O_NONBLOCK, 0)
		if err != nil {
			r.t.Skipf("without taps: %v", err)
		}
		r.t.Cleanup(func() { file.Close() })
		request, err := unix.NewIfreq("vmlettest%d")
		if err == nil {
			request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
			err = unix.IoctlIfreq(int(file.Fd()), unix.TUNSETIFF, request)
		}
		if err != nil {
			r.t.Skipf("without taps: %v", err)
		}
		taps = append(taps, file)
	}
	return taps
}

// let waits until the guest has let go of a device.
func (r *rig) let(id string) {
	r.t.Helper()
	for {
		info, err := r.client.Info(testContext(r.t))
		if err != nil {
			r.t.Fatal(err)
		}
		if _, there := info.Devices[id]; !there {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
