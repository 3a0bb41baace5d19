package seccomp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// childVariable makes a run of this test program the one that is restricted.
const childVariable = "VMLET_SECCOMP_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) == "" {
		os.Exit(m.Run())
	}
	os.Exit(child())
}

// enough for Go's runtime to go on.
func enough() []Call {
	return append(Any(unix.SYS_WRITE, unix.SYS_READ, unix.SYS_FUTEX, unix.SYS_EXIT_GROUP, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MADVISE,
		unix.SYS_SIGALTSTACK, unix.SYS_NANOSLEEP, unix.SYS_GETTID, unix.SYS_GETPID, unix.SYS_TGKILL, unix.SYS_CLONE, unix.SYS_CLOSE, unix.SYS_EPOLL_PWAIT, unix.SYS_MPROTECT, unix.SYS_RSEQ, unix.SYS_SET_ROBUST_LIST, unix.SYS_RT_SIGACTION),
		Where(unix.SYS_SOCKET, 0, unix.AF_NETLINK))
}

// child makes calls from another thread than the one that has installed the filter.
func child() int {
	threads := make(chan func() error)
	results := make(chan error)
	go func() {
		for f := range threads {
			results <- f()
		}
	}()
	if err := Install(enough()); err != nil {
		fmt.Println(err)
		return 1
	}
	for name, c := range map[string]struct {
		call func() error
		want error
	}{
		"allowed":         {func() error { _, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, 0); return err }, nil},
		"another value":   {func() error { _, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0); return err }, unix.EPERM},
		"not listed":      {func() error { return unix.Chdir("/") }, unix.EPERM},
		"a new namespace": {func() error { return unix.Unshare(unix.CLONE_NEWNET) }, unix.EPERM},
		"clone3":          {func() error { _, _, e := unix.RawSyscall(unix.SYS_CLONE3, 0, 0, 0); return e }, unix.ENOSYS},
	} {
		threads <- c.call
		if err := <-results; !errors.Is(err, c.want) {
			fmt.Printf("%s: %v, want %v\n", name, err, c.want)
			return 1
		}
	}
	return 0
}

// TestInstall: the kernel takes the filter, for all threads.
func TestInstall(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestFilter runs filters on calls that nobody makes.
func TestFilter(t *testing.T) {
	calls := []Call{{Number: 1}, Where(2, 1, 7, 8), {Number: 3, Restricted: true, Mask: 0xf0, Values: []uint32{0x10}}}
	filter, err := assemble(calls)
	if err != nil {
		t.Skip(err) // another architecture
	}
	vm, err := bpf.NewVM(filter)
	if err != nil {
		t.Fatal(err)
	}
	arch := filter[1].(bpf.JumpIf).Val
	const allow, refuse = unix.SECCOMP_RET_ALLOW, unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	for name, c := range map[string]struct {
		arch, number uint32
		args         [6]uint32
		want         uint32
	}{
		"listed":               {arch, 1, [6]uint32{9, 9, 9}, allow},
		"not listed":           {arch, 4, [6]uint32{}, refuse},
		"a value":              {arch, 2, [6]uint32{0, 8}, allow},
		"the value elsewhere":  {arch, 2, [6]uint32{8, 0}, refuse},
		"masked":               {arch, 3, [6]uint32{0x1f}, allow},
		"masked, another":      {arch, 3, [6]uint32{0x2f}, refuse},
		"another architecture": {arch + 1, 1, [6]uint32{}, unix.SECCOMP_RET_KILL_PROCESS},
		"clone3":               {arch, unix.SYS_CLONE3, [6]uint32{}, unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
	} {
		t.Run(name, func(t *testing.T) {
			// The VM is one of networks: it reads in their order of bytes.
			data := make([]byte, 64)
			binary.BigEndian.PutUint32(data[offsetNumber:], c.number)
			binary.BigEndian.PutUint32(data[offsetArchitecture:], c.arch)
			for i, a := range c.args {
				binary.BigEndian.PutUint32(data[offsetArguments+i*sizeArgument:], a)
			}
			got, err := vm.Run(data)
			if err != nil || uint32(got) != c.want {
				t.Errorf("%#x, %v, want %#x", got, err, c.want)
			}
		})
	}
	if _, err := assemble([]Call{{Number: 1}, {Number: 1}}); err == nil {
		t.Error("a call that is listed twice")
	}
}
