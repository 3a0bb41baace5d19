package device

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/vmlet/vmlet/sysfs"
	"golang.org/x/sys/unix"
)

func TestRequest(t *testing.T) {
	for got, want := range map[uintptr]uintptr{
		Request(None, 0xAE, 0x00, 0):         0xAE00,     // KVM_GET_API_VERSION
		Request(Read, 'T', 207, 4):           0x800454CF, // TUNGETFEATURES
		Request(Write, 0xB8, 0, 16):          0x4010B800, // MSHV_CREATE_PARTITION
		Request(ReadWrite, 'S', 0, 16):       0xC0105300, // SEV_ISSUE_CMD
		Request(ReadWrite, 0xAE, 0x05, 8):    0xC008AE05, // KVM_GET_SUPPORTED_CPUID
		Request(Read, 'T', 0x30, uintptr(4)): unix.TIOCGPTN,
	} {
		if got != want {
			t.Errorf("%#x, want %#x", got, want)
		}
	}
}

// The kernel writes into the buffer, and finds a linked one by the address that Fill puts where it was told.
func TestSystemFill(t *testing.T) {
	ptmx, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer ptmx.Close()
	size := []byte{24, 0, 80, 0, 0, 0, 0, 0} // struct winsize
	if _, err := (System{}).Fill(int(ptmx.Fd()), unix.TIOCSWINSZ, size); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(size))
	if _, err := (System{}).Fill(int(ptmx.Fd()), unix.TIOCGWINSZ, got); err != nil || string(got) != string(size) {
		t.Errorf("%v, %v, want %v", got, err, size)
	}
	linked, outer := []byte{7}, make([]byte, 16)
	if _, err := (System{}).Fill(int(ptmx.Fd()), unix.TIOCGWINSZ, outer, Link{Offset: 8, Buf: linked}); err != nil {
		t.Fatal(err)
	}
	if got, want := binary.NativeEndian.Uint64(outer[8:]), uint64(uintptr(unsafe.Pointer(&linked[0]))); got != want {
		t.Errorf("the address is %#x, want %#x", got, want)
	}
	if _, err := (System{}).Call(int(ptmx.Fd()), 0x1234, 0); err != unix.ENOTTY {
		t.Errorf("an unknown request: %v", err)
	}
}

// What doesn't fit never gets to the kernel.
func TestSystemFillRefuses(t *testing.T) {
	for name, links := range map[string][]Link{
		"past the end": {{Offset: 1, Buf: []byte{1}}},
		"before it":    {{Offset: -1, Buf: []byte{1}}},
		"empty":        {{Offset: 0, Buf: nil}},
	} {
		if _, err := (System{}).Fill(-1, 0, make([]byte, 8), links...); err != unix.EFAULT {
			t.Errorf("%s: %v, want EFAULT", name, err)
		}
	}
	if _, err := (System{}).Fill(-1, 0, nil); err != unix.EFAULT {
		t.Errorf("no buffer: %v, want EFAULT", err)
	}
}

// The instruction and the kernel's device say the same of what no processor has its own.
func TestCPUID(t *testing.T) {
	read := cpuidOfDevice("/dev/cpu/0/cpuid")
	if _, err := read(0, 0); err != nil || !hasCPUID {
		t.Skip(err)
	}
	here := CPUIDReader(sysfs.Roots{})
	for _, function := range []uint32{0, 0x80000000, 0x80000002} {
		want, err := read(function, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := here(function, 0); err != nil || got != want {
			t.Errorf("leaf %#x: %#x, %v, want %#x", function, got, err, want)
		}
	}
}

// The running system's roots may be given by name, as commands do that have flags for them.
func TestCPUIDOfNamedRoots(t *testing.T) {
	if !hasCPUID {
		t.Skip("no such instruction")
	}
	leaf, err := CPUIDReader(sysfs.Roots{Sys: "/sys", Proc: "/proc", Dev: "/dev"})(0, 0)
	if want := cpuid(0, 0); err != nil || leaf != want {
		t.Errorf("%#x, %v, want %#x", leaf, err, want)
	}
}

// Under another machine's root this one's processor is not asked.
func TestCPUIDOfAnotherMachine(t *testing.T) {
	dev := t.TempDir()
	_, err := CPUIDReader(sysfs.Roots{Dev: dev})(0, 0)
	var fail *Failure
	if !errors.As(err, &fail) || fail.Errno != unix.ENOENT || !strings.Contains(fail.Remedy, "modprobe cpuid") {
		t.Errorf("%v, want ENOENT", err)
	}
	path := filepath.Join(dev, "cpu/0/cpuid")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/null", path); err != nil {
		t.Fatal(err)
	}
	if _, err := CPUIDReader(sysfs.Roots{Dev: dev})(0, 0); err == nil || !strings.Contains(err.Error(), "0 bytes") {
		t.Errorf("%v, want that there is nothing in it", err)
	}
}

func TestText(t *testing.T) {
	dir := t.TempDir()
	long, pipe := filepath.Join(dir, "long"), filepath.Join(dir, "pipe")
	if err := os.WriteFile(long, []byte(" x\n"+strings.Repeat("y", 1<<16)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := Text(long); err != nil || len(text) >= maxText || text[0] != 'x' {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	if text, err := Text(pipe); text != "" {
		t.Errorf("a pipe that nobody writes to: %q, %v", text, err)
	}
	if _, err := Text(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v, want that there is none", err)
	}
}

func TestWithin(t *testing.T) {
	if got, err := Within(t.Context(), func(context.Context) int { return 7 }); got != 7 || err != nil {
		t.Errorf("%d, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	got, err := Within(ctx, func(context.Context) int { cancel(); <-release; return 7 })
	if got != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d, %v, want it given up", got, err)
	}
}
