package driver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/internal/unixsocket"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/test/guest"
	"github.com/vmlet/vmlet/vmm/qemu/driver"
	"github.com/vmlet/vmlet/vmm/qemu/qmp"
	"github.com/vmlet/vmlet/vmm/qemu/wire"
)

// forEachQEMU runs a test under all QEMUs of this machine.
func forEachQEMU(t *testing.T, test func(t *testing.T, binary string)) {
	binaries := map[string]string{}
	if path, err := exec.LookPath("qemu-system-x86_64"); err == nil {
		binaries["own"] = path
	}
	if path, err := guest.QEMU10(); err == nil {
		binaries["10"] = path
	}
	if len(binaries) == 0 {
		t.Skip("no qemu-system-x86_64: run test/setup test")
	}
	for name, binary := range binaries {
		t.Run(name, func(t *testing.T) { test(t, binary) })
	}
}

// patience bounds a test; nothing waits for as long unless it is broken.
func patience(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// start runs a QEMU that counts in its firmware, and returns its machine.
func start(t *testing.T, binary string, args ...string) (control.Machine, *exec.Cmd) {
	t.Helper()
	m, cmd, err := startTold(t, nil, binary, args...)
	if err != nil {
		t.Fatal(err)
	}
	return m, cmd
}

// startTold has the driver tell QEMU what a plan says.
func startTold(t *testing.T, p *plan.Plan, binary string, args ...string) (control.Machine, *exec.Cmd, error) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	own, other := os.NewFile(uintptr(fds[0]), "own"), os.NewFile(uintptr(fds[1]), "other")
	cmd := exec.Command(binary, append([]string{
		"-nodefaults", "-no-user-config", "-display", "none", "-accel", "tcg", "-machine", "q35", "-m", "64",
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		"-chardev", "socket,id=shim,fd=3", "-mon", "chardev=shim,mode=control",
	}, args...)...)
	cmd.ExtraFiles = []*os.File{other}
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	other.Close()
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	conn, err := net.FileConn(own)
	own.Close()
	if err != nil {
		t.Fatal(err)
	}
	m, err := driver.QEMU{}.Connect(patience(t), control.Link{Plan: p, Dial: func(_ context.Context, name string) (net.Conn, error) {
		if name != wire.ShimMonitor {
			return nil, fmt.Errorf("the driver wants %s", name)
		}
		return conn, nil
	}})
	if err != nil {
		return nil, cmd, err
	}
	t.Cleanup(func() { m.Close() })
	return m, cmd, nil
}

// TestBegin: what a plan has QEMU told is done before the guest runs, or the start fails.
func TestBegin(t *testing.T) {
	nic := []string{"-S", "-netdev", "user,id=net0", "-device", "virtio-net-pci,id=net0-device,netdev=net0,romfile="}
	forEachQEMU(t, func(t *testing.T, binary string) {
		for instructions, want := range map[string]string{
			`{"commands":[{"name":"set_link","arguments":{"name":"net0-device","up":false}}]}`:  "",
			`{"commands":[{"name":"set_link","arguments":{"name":"other-device","up":false}}]}`: "other-device",
			`[]`: "instructions for QEMU",
		} {
			m, _, err := startTold(t, &plan.Plan{Instructions: json.RawMessage(instructions)}, binary, nic...)
			switch {
			case want == "" && err != nil:
				t.Errorf("%s: %v", instructions, err)
			case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
				t.Errorf("%s: error %v, want one with %q", instructions, err, want)
			case err == nil:
				if err := m.Continue(patience(t)); err != nil {
					t.Errorf("%s: going on: %v", instructions, err)
				}
			}
		}
	})
}

// stateFile is where a machine can be saved to.
func stateFile(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func running(t *testing.T, m control.Machine) {
	t.Helper()
	ran, err := m.Stop(patience(t))
	if err != nil || !ran {
		t.Errorf("it ran: %t, %v", ran, err)
	}
	if err := m.Continue(patience(t)); err != nil {
		t.Error(err)
	}
}

func TestSaveFailsAndGoesOn(t *testing.T) {
	forEachQEMU(t, func(t *testing.T, binary string) {
		m, _ := start(t, binary)
		ctx := patience(t)
		full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer full.Close()
		good := stateFile(t)

		if ran, err := m.Stop(ctx); !ran || err != nil {
			t.Fatal(ran, err)
		}
		if ran, err := m.Stop(ctx); ran || err != nil {
			t.Errorf("stopped, and it ran: %t, %v", ran, err)
		}
		if err := m.SaveState(ctx, full, false); err == nil {
			t.Error("saved to a full disk")
		} else {
			t.Log(err)
		}
		if err := m.Continue(ctx); err != nil {
			t.Fatal(err)
		}
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		if err := m.SaveState(cancelled, good, false); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		running(t, m)
		if _, err := m.Stop(ctx); err != nil {
			t.Fatal(err)
		}
		if err := m.SaveState(ctx, good, false); err != nil {
			t.Fatal(err)
		}
		if err := m.Continue(ctx); err != nil { // from postmigrate
			t.Fatal(err)
		}
		running(t, m)

		other, _ := start(t, binary, "-S", "-incoming", "defer")
		if err := other.LoadState(ctx, good, false); err != nil {
			t.Fatal(err)
		}
		if err := other.Continue(ctx); err != nil {
			t.Fatal(err)
		}
		running(t, other)
	})
}

// TestSaveGivenUpStandsStill gives up the second save of a guest that stands
// still when it goes on for a moment.
func TestSaveGivenUpStandsStill(t *testing.T) {
	forEachQEMU(t, func(t *testing.T, binary string) {
		ctx, cancel := context.WithCancel(patience(t))
		defer cancel()
		path := filepath.Join(t.TempDir(), "watch.sock")
		m, _ := start(t, binary, "-chardev", "socket,id=watch,server=on,wait=off,path="+path, "-mon", "chardev=watch,mode=control")
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		watch, err := qmp.New(ctx, conn)
		if err != nil {
			t.Fatal(err)
		}
		defer watch.Close()
		resumes := watch.Subscribe("RESUME")
		go func() {
			_, _ = resumes.Next(ctx)
			cancel()
		}()
		if _, err := m.Stop(ctx); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := m.SaveState(ctx, stateFile(t), false); err != nil && !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		<-ctx.Done()
		if ran, err := m.Stop(patience(t)); ran || err != nil {
			t.Errorf("it runs: %t, %v", ran, err)
		}
	})
}

// TestSaveAfterReset saves a guest that stands still since a save, and was reset.
func TestSaveAfterReset(t *testing.T) {
	forEachQEMU(t, func(t *testing.T, binary string) {
		disk := filepath.Join(t.TempDir(), "disk")
		if err := os.WriteFile(disk, make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		m, _ := start(t, binary, "-blockdev", "driver=file,node-name=disk,filename="+disk, "-device", "virtio-blk-pci,drive=disk")
		ctx := patience(t)
		if _, err := m.Stop(ctx); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := m.SaveState(ctx, stateFile(t), false); err != nil {
				t.Fatal(err)
			}
			if err := driver.Reset(ctx, m); err != nil {
				t.Fatal(err)
			}
			if err := driver.AwaitReset(ctx, m); err != nil {
				t.Fatal(err)
			}
		}
		if ran, err := m.Stop(ctx); ran || err != nil {
			t.Errorf("it runs: %t, %v", ran, err)
		}
		if err := m.Continue(ctx); err != nil {
			t.Error(err)
		}
		running(t, m)
	})
}

func TestLoadRefusesGarbage(t *testing.T) {
	forEachQEMU(t, func(t *testing.T, binary string) {
		m, _ := start(t, binary, "-S", "-incoming", "defer")
		path := filepath.Join(t.TempDir(), "state")
		if err := os.WriteFile(path, []byte(strings.Repeat("garbage", 1000)), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		err = m.LoadState(patience(t), f, false)
		if err == nil {
			t.Fatal("loaded")
		}
		t.Log(err)
		// QEMU stays and tells why, or it is gone.
		if errors.Is(err, control.ErrMonitorClosed) {
			return
		}
		if err := m.Continue(patience(t)); err == nil {
			t.Error("a QEMU that could not load runs")
		}
	})
}

func TestEnding(t *testing.T) {
	forEachQEMU(t, func(t *testing.T, binary string) {
		ctx := patience(t)
		m, cmd := start(t, binary)
		if err := m.Quit(ctx); err != nil {
			t.Fatal(err)
		}
		if got := m.Ending(ctx); got != (control.Ending{Told: true}) {
			t.Errorf("after quit: %+v", got)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		if err := m.PowerDown(ctx); !errors.Is(err, control.ErrMonitorClosed) {
			t.Errorf("error %v", err)
		}

		m, cmd = start(t, binary)
		if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if got := m.Ending(ctx); got != (control.Ending{}) {
			t.Errorf("after SIGTERM: %+v", got)
		}
		gone, cancel := context.WithCancel(ctx)
		cancel()
		m, _ = start(t, binary)
		if got := m.Ending(gone); got != (control.Ending{}) {
			t.Errorf("while it runs: %+v", got)
		}
	})
}

// TestAddDisplay: a client is handed to a QEMU that shows a display, and refused by one that
// shows none.
func TestAddDisplay(t *testing.T) {
	forEachQEMU(t, func(t *testing.T, binary string) {
		attach := func(args ...string) (net.Conn, error) {
			m, _ := start(t, binary, args...)
			own, other, err := unixsocket.Pair("client")
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			t.Cleanup(func() { own.Close() })
			return own, m.(control.Displayer).AddDisplay(patience(t), other)
		}
		client, err := attach("-vnc", "none", "-device", "VGA")
		if err != nil {
			t.Fatal(err)
		}
		banner := make([]byte, 12)
		if _, err := io.ReadFull(client, banner); err != nil || string(banner) != "RFB 003.008\n" {
			t.Errorf("%q, %v", banner, err)
		}
		_, err = attach()
		var refused *shim.Error
		if !errors.As(err, &refused) || refused.Code != shim.CodePrecondition {
			t.Errorf("error %v of a QEMU without a display", err)
		}
	})
}

// TestNoGuestAgent: nobody waits for an agent where no guest has opened its port.
func TestNoGuestAgent(t *testing.T) {
	forEachQEMU(t, func(t *testing.T, binary string) {
		m, _ := start(t, binary)
		agent := m.(control.GuestAgent)
		for what, err := range map[string]error{"freeze": agent.Freeze(patience(t)), "thaw": agent.Thaw(patience(t)), "ping": agent.Ping(patience(t))} {
			if !errors.Is(err, control.ErrNoGuestAgent) {
				t.Errorf("%s: %v", what, err)
			}
		}
		var refused *shim.Error
		if err := m.(control.Rebooter).Reboot(patience(t), false); !errors.As(err, &refused) || refused.Code != shim.CodePrecondition {
			t.Errorf("reboot without a power button: %v", err)
		}
	})
}
