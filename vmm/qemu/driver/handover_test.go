package driver_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/shim/server/control"
)

// counterAt is where the guest counts, in its memory and so in the file.
const counterAt = 0x7000

// counting is a disk whose boot sector counts for ever:
//
//	xor ax, ax; mov ds, ax; again: inc dword [counterAt]; jmp again
func counting(t *testing.T) string {
	t.Helper()
	image := make([]byte, 1<<20)
	copy(image, []byte{0x31, 0xc0, 0x8e, 0xd8, 0x66, 0xff, 0x06, counterAt & 0xff, counterAt >> 8, 0xeb, 0xf9})
	image[510], image[511] = 0x55, 0xaa
	path := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(path, image, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// memoryFile is a guest's RAM.
func memoryFile(t *testing.T) *os.File {
	t.Helper()
	f, err := os.CreateTemp("/dev/shm", "vmlet-test")
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { f.Close(); os.Remove(f.Name()) })
	if err := f.Truncate(64 << 20); err != nil {
		t.Fatal(err)
	}
	return f
}

// pair are two QEMUs for one guest that counts: the first runs, the second waits.
type pair struct {
	t        *testing.T
	ram      *os.File
	from, to control.Machine
	// endFrom and endTo kill them.
	endFrom, endTo func()
}

func newPair(t *testing.T, from, to string, more ...string) *pair {
	t.Helper()
	p := &pair{t: t, ram: memoryFile(t)}
	args := append([]string{
		"-uuid", "6b0c1d61-5a7c-4b0f-9a4e-0d3b0f6d9c11",
		"-machine", "pc-q35-7.2,memory-backend=ram0", "-object", "memory-backend-file,id=ram0,size=64M,share=on,mem-path=" + p.ram.Name(),
		"-blockdev", "driver=file,node-name=disk,filename=" + counting(t), "-device", "virtio-blk-pci,drive=disk",
	}, more...)
	m, cmd := start(t, from, args...)
	p.from, p.endFrom = m, func() { cmd.Process.Kill(); cmd.Wait() }
	p.counts()
	m, other := start(t, to, append([]string{"-S", "-incoming", "defer"}, args...)...)
	p.to, p.endTo = m, func() { other.Process.Kill(); other.Wait() }
	return p
}

func (p *pair) count() uint32 {
	p.t.Helper()
	var b [4]byte
	if _, err := p.ram.ReadAt(b[:], counterAt); err != nil {
		p.t.Fatal(err)
	}
	return binary.LittleEndian.Uint32(b[:])
}

// counts wants the guest to run.
func (p *pair) counts() {
	p.t.Helper()
	for before, ctx := p.count(), patience(p.t); p.count() == before; time.Sleep(time.Millisecond) {
		if ctx.Err() != nil {
			p.t.Fatal("the guest does not run")
		}
	}
}

// stands wants it not to.
func (p *pair) stands() {
	p.t.Helper()
	before := p.count()
	time.Sleep(50 * time.Millisecond)
	if now := p.count(); now != before {
		p.t.Errorf("the guest runs: it has counted from %d to %d", before, now)
	}
}

// handOver runs both ends, and returns what each says.
func (p *pair) handOver(ctx context.Context, stopped func() error) (sent, received error) {
	p.t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	a, b := os.NewFile(uintptr(fds[0]), "sender"), os.NewFile(uintptr(fds[1]), "receiver")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- p.to.(control.Receiver).Receive(ctx, control.Handover{Stream: b, SharedRAM: true})
		b.Close()
	}()
	sent = p.from.(control.Sender).Send(ctx, control.Handover{Stream: a, SharedRAM: true}, stopped)
	a.Close()
	if sent != nil {
		cancel()
	}
	return sent, <-done
}

// TestHandOver: the guest goes on in another QEMU, also a newer one, and can be saved there.
func TestHandOver(t *testing.T) {
	forEachQEMU(t, func(t *testing.T, to string) {
		forEachQEMU(t, func(t *testing.T, from string) {
			ctx := patience(t)
			p := newPair(t, from, to)
			var began time.Time
			sent, received := p.handOver(ctx, func() error {
				p.stands()
				began = time.Now()
				return nil
			})
			if sent != nil || received != nil {
				t.Fatalf("sent: %v; received: %v", sent, received)
			}
			t.Logf("handed over within %v", time.Since(began))
			p.stands()
			if err := p.to.(control.Receiver).Begin(ctx); err != nil {
				t.Fatal(err)
			}
			p.counts()
			p.endFrom()
			p.counts()
			if _, err := p.to.Stop(ctx); err != nil {
				t.Fatal(err)
			}
			if err := p.to.SaveState(ctx, stateFile(t), true); err != nil {
				t.Errorf("a save afterwards: %v", err)
			}
			if err := p.to.Continue(ctx); err != nil {
				t.Fatal(err)
			}
			p.counts()
		})
	})
}

// TestHandOverFails: whatever goes wrong before the other QEMU has begun, the guest goes on where it was, and can be saved.
func TestHandOverFails(t *testing.T) {
	told := errors.New("told to")
	for name, c := range map[string]struct {
		more    []string // arguments of both
		stopped func(p *pair, cancel func()) error
		after   func(p *pair) // both have ended well
	}{
		"given up when it is stopped": {stopped: func(*pair, func()) error { return told }},
		"cancelled when it is stopped": {stopped: func(_ *pair, cancel func()) error {
			cancel()
			return nil
		}},
		"the other ends when it is stopped": {stopped: func(p *pair, _ func()) error {
			p.endTo()
			return nil
		}},
		"the other ends when it has all": {
			stopped: func(*pair, func()) error { return nil },
			after: func(p *pair) {
				p.endTo()
				if err := p.from.Continue(patience(p.t)); err != nil {
					p.t.Error(err)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			forEachQEMU(t, func(t *testing.T, binary string) {
				ctx, cancel := context.WithCancel(patience(t))
				defer cancel()
				p := newPair(t, binary, binary)
				sent, received := p.handOver(ctx, func() error { return c.stopped(p, cancel) })
				if failed := sent != nil; failed == (c.after != nil) {
					t.Fatalf("sent: %v; received: %v", sent, received)
				}
				t.Logf("sent: %v; received: %v", sent, received)
				if c.after != nil {
					c.after(p)
				}
				p.counts()
				ctx = patience(t)
				if _, err := p.from.Stop(ctx); err != nil {
					t.Fatal(err)
				}
				if err := p.from.SaveState(ctx, stateFile(t), true); err != nil {
					t.Errorf("a save afterwards: %v", err)
				}
				if err := p.from.Continue(ctx); err != nil {
					t.Fatal(err)
				}
				p.counts()
			})
		})
	}
}

// TestHandOverRefused: another machine does not load, and the guest goes on where it was; one that does not run is not sent.
func TestHandOverRefused(t *testing.T) {
	forEachQEMU(t, func(t *testing.T, binary string) {
		ctx := patience(t)
		p := newPair(t, binary, binary)
		p.endTo()
		other, cmd := start(t, binary, "-S", "-incoming", "defer",
			"-uuid", "6b0c1d61-5a7c-4b0f-9a4e-0d3b0f6d9c11",
			"-machine", "pc-q35-7.2,memory-backend=ram0", "-object", "memory-backend-file,id=ram0,size=64M,share=on,mem-path="+p.ram.Name())
		defer cmd.Process.Kill()
		p.to = other
		if sent, received := p.handOver(ctx, func() error { return nil }); sent == nil {
			t.Errorf("sent to a machine without a disk; received: %v", received)
		} else {
			t.Logf("sent: %v; received: %v", sent, received)
		}
		p.counts()
		if err := other.(control.Receiver).Begin(ctx); err == nil {
			t.Error("a QEMU that could not load has begun")
		}
		if _, err := p.from.Stop(ctx); err != nil {
			t.Fatal(err)
		}
		if err := p.from.(control.Sender).Send(ctx, control.Handover{}, nil); err == nil || fmt.Sprint(err) == "" {
			t.Error("a guest that does not run was sent")
		}
		p.stands()
	})
}
