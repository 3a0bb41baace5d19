package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/test/guest"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/wire"
	"golang.org/x/sys/unix"
)

// secret is in a VM's user data, and is nobody else's.
const secret = "vmlet-test-secret-4c1f"

// isolated has what a guest could do that has taken over its VMM: whatever that VMM's
// user tries on another VM, on the agent and on the node is refused.
func (s *suite) isolated() {
	one := s.boots("one", guest.PVHOptions{})
	spec := s.spec("two", guest.PVHOptions{})
	spec.Disks = []*specv1.Disk{{Path: newDisk(s.t, "raw"), Format: "raw"}}
	s.locked(filepath.Dir(spec.Disks[0].Path))
	spec.CloudInit = &specv1.CloudInit{UserData: "#cloud-config\n# " + secret + "\n"}
	if s.vmm == "cloud-hypervisor" { // whose vsock is a socket of the VMM's
		spec.Devices = &specv1.Devices{Vsock: &specv1.Vsock{Cid: 42}}
	}
	two := s.boot(spec)
	two.count()
	// Modes alone are to keep others out, and not the folders above.
	images := s.path("images")
	s.must(os.Mkdir(images, 0o755))
	s.t.Cleanup(func() { os.RemoveAll(images) })
	two.save(filepath.Join(images, "image"), true)

	mine, others := one.get().GetStatus().GetProcess(), two.get().GetStatus().GetProcess()
	if mine.GetUid() == others.GetUid() || !s.ownUID(mine.GetUid()) || !s.ownUID(others.GetUid()) {
		s.t.Fatalf("users %d and %d: each VM is to have its own", mine.GetUid(), others.GetUid())
	}
	for _, p := range []*nodev1.ProcessStatus{mine, others} {
		s.confined(p)
	}
	s.holdsOnly(one)
	s.holdsOnly(two, spec.Disks[0].GetPath())
	files := s.everyFile()
	if socket := s.path("state", "vms", "two", "vmm", wire.VsockSocket); spec.GetDevices().GetVsock() != nil && !slices.Contains(files, socket) {
		s.t.Errorf("the VM's vsock is not at %s", socket)
	}
	as(s.t, mine.GetUid(), func() {
		// That it can look at itself shows that the rest is refused for a reason.
		if _, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", mine.GetVmmPid())); err != nil {
			s.t.Errorf("user %d can't read its own VMM's environment: %v", mine.GetUid(), err)
		}
		s.filesRefused(files)
		for _, pid := range []int64{others.GetVmmPid(), others.GetShimPid(), mine.GetShimPid(), int64(s.cmd.Process.Pid)} {
			processRefused(s.t, int(pid))
		}
		s.cgroupsRefused(mine, others)
	})
	s.secretIsKept(others)
}

// locked keeps a folder locked (flock(2)), as any user can who may read it: no other VM
// is to wait for that.
func (s *suite) locked(dir string) {
	s.t.Helper()
	f, err := os.Open(dir)
	s.must(err)
	s.t.Cleanup(func() { f.Close() })
	s.must(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB))
}

// as runs f as another user, without groups and capabilities: on a thread of its own,
// which ends with it.
func as(t *testing.T, uid uint32, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The first thread stands for the process, and doesn't end: another
			// is used while this one is held.
			as(t, uid, f)
			runtime.UnlockOSThread()
			done <- nil
			return
		}
		err := become(uid)
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Errorf("becoming user %d: %v", uid, err)
	}
}

// become changes the user of this thread alone.
func become(uid uint32) error {
	id := uintptr(uid)
	for _, call := range [][2]uintptr{{unix.SYS_SETGROUPS, 0}, {unix.SYS_SETRESGID, id}, {unix.SYS_SETRESUID, id}} {
		if _, _, errno := unix.RawSyscall(call[0], call[1], call[1], call[1]); errno != 0 {
			return errno
		}
	}
	return nil
}

// everyFile is all that a node has, by its paths.
func (n *node) everyFile() []string {
	n.t.Helper()
	var all []string
	n.must(filepath.WalkDir(n.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all = append(all, path)
		}
		return err
	}))
	for _, want := range []string{"ram/two", "vms/two/vm.json", "vms/two/console.log", "vms/two/shim.sock", "image/manifest.json", "image/memory", "image/state", "vmlet.sock"} {
		if !slices.ContainsFunc(all, func(path string) bool { return strings.HasSuffix(path, want) }) {
			n.t.Errorf("there is no %s among the %d files of the node", want, len(all))
		}
	}
	return all
}

func (n *node) filesRefused(paths []string) {
	for _, path := range paths {
		for _, flag := range []int{os.O_RDONLY, os.O_WRONLY} {
			f, err := os.OpenFile(path, flag|unix.O_NONBLOCK, 0)
			if err == nil {
				f.Close()
			}
			if !errors.Is(err, fs.ErrPermission) && !errors.Is(err, unix.ENXIO) { // ENXIO: a socket
				n.t.Errorf("another VM's user opens %s: %v", path, err)
			}
		}
		if strings.HasSuffix(path, ".sock") {
			// Not through net.Dial, which may go on on another thread.
			if err := connect(path); !errors.Is(err, fs.ErrPermission) {
				n.t.Errorf("another VM's user connects to %s: %v", path, err)
			}
		}
	}
}

func connect(path string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Connect(fd, &unix.SockaddrUnix{Name: path})
}

// processRefused tries what one process can do to another.
func processRefused(t *testing.T, pid int) {
	t.Helper()
	for _, file := range []string{"mem", "maps", "environ", "fd", "root/etc", "cwd/etc", "auxv"} {
		if f, err := os.Open(fmt.Sprintf("/proc/%d/%s", pid, file)); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("another VM's user opens %s of process %d: %v", file, pid, err)
			f.Close()
		}
	}
	for what, err := range map[string]error{
		"traces":                unix.PtraceSeize(pid),
		"stops":                 unix.Kill(pid, unix.SIGSTOP),
		"kills":                 unix.Kill(pid, unix.SIGKILL),
		"reads the memory of":   readMemory(pid),
		"takes a descriptor of": takeDescriptor(pid),
	} {
		if !errors.Is(err, unix.EPERM) {
			t.Errorf("another VM's user %s process %d: %v", what, pid, err)
		}
	}
}

func readMemory(pid int) error {
	b := make([]byte, 1)
	local := unix.Iovec{Base: &b[0]}
	local.SetLen(1)
	_, err := unix.ProcessVMReadv(pid, []unix.Iovec{local}, []unix.RemoteIovec{{Base: 1 << 16, Len: 1}}, 0)
	return err
}

func takeDescriptor(pid int) error {
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(process)
	fd, err := unix.PidfdGetfd(process, 3, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// cgroupsRefused: it neither leaves its cgroup nor changes one.
func (n *node) cgroupsRefused(mine, others *nodev1.ProcessStatus) {
	for _, path := range []string{mine.GetCgroup(), others.GetCgroup(), filepath.Dir(mine.GetCgroup())} {
		found := false
		for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified"} {
			procs := filepath.Join(root, path, "cgroup.procs")
			if _, err := os.Stat(procs); err != nil {
				continue
			}
			found = true
			if f, err := os.OpenFile(procs, os.O_WRONLY, 0); !errors.Is(err, fs.ErrPermission) {
				n.t.Errorf("a VM's user writes to %s: %v", procs, err)
				f.Close()
			}
		}
		if !found {
			n.t.Errorf("no cgroup %s was found", path)
		}
	}
}

// confined looks at what the kernel says of a VMM and of each of its threads.
func (s *suite) confined(p *nodev1.ProcessStatus) {
	s.t.Helper()
	uid := strconv.FormatUint(uint64(p.GetUid()), 10)
	want := map[string]string{
		"Uid": strings.Join(slices.Repeat([]string{uid}, 4), "\t"), "Gid": strings.Join(slices.Repeat([]string{uid}, 4), "\t"),
		"Groups": "", "CapInh": noCapability, "CapPrm": noCapability, "CapEff": noCapability, "CapBnd": noCapability, "CapAmb": noCapability,
		"NoNewPrivs": "1",
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", p.GetVmmPid()))
	if err != nil || len(threads) == 0 {
		s.t.Fatalf("the threads of VMM %d: %q, %v", p.GetVmmPid(), threads, err)
	}
	for _, thread := range threads {
		status, err := os.ReadFile(thread)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // it has ended meanwhile
		}
		s.must(err)
		for line := range strings.Lines(string(status)) {
			name, value, _ := strings.Cut(line, ":")
			if w, looked := want[name]; looked && strings.TrimSpace(value) != w {
				s.t.Errorf("%s has %s %q, want %q", thread, name, strings.TrimSpace(value), w)
			}
			if name == "Seccomp" && strings.TrimSpace(value) != "2" && s.filtered(p, thread) { // SECCOMP_MODE_FILTER
				s.t.Errorf("%s has no seccomp filter: %s", thread, line)
			}
		}
	}
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.GetVmmPid()))
	s.must(err)
	variables := slices.DeleteFunc(strings.Split(strings.TrimSuffix(string(environ), "\x00"), "\x00"), s.wrappers)
	if len(variables) != 2 || !strings.HasPrefix(variables[0], "PATH=/") || variables[1] != "LC_ALL=C" {
		s.t.Errorf("a VMM's environment is %q, want PATH and LC_ALL alone", variables)
	}
	if cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", p.GetVmmPid())); err != nil || cwd != "/" {
		s.t.Errorf("a VMM's working directory is %q, %v", cwd, err)
	}
}

// wrappers says whether a variable is one that the script sets that starts QEMU 10 where
// test/setup has unpacked it.
func (s *suite) wrappers(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	return s.options.qemu.name == "10" && slices.Contains([]string{"LD_LIBRARY_PATH", "QEMU_MODULE_DIR", "PWD"}, name)
}

// filtered says whether a thread is to have a seccomp filter. cloud-hypervisor's first
// one only waits for the others, and has none; the stand-in has none at all.
func (s *suite) filtered(p *nodev1.ProcessStatus, thread string) bool {
	first := strings.Contains(thread, fmt.Sprintf("/task/%d/", p.GetVmmPid()))
	return s.vmm == "qemu" || !first && !strings.Contains(s.target.name, "stand-in")
}

// noCapability is an empty set, as /proc/PID/status has it.
const noCapability = "0000000000000000"

// holdsOnly: what a VMM has open has no name, is a device that all guests have, or the
// VM's own: these files, its RAM and what is in its state folder, but for its logs.
func (s *suite) holdsOnly(v *vm, own ...string) {
	s.t.Helper()
	allowed := slices.Concat(own, []string{
		"socket:[", "pipe:[", "anon_inode:", "/memfd:", "/dev/null", "/dev/kvm", "/dev/ptmx", "/dev/pts/", "/dev/urandom",
		s.path("run", "ram", v.name), s.path("state", "vms", v.name) + "/",
	})
	switch {
	case s.options.qemu.name == "10":
		allowed = append(allowed, s.options.qemu.binary) // a script, which the shell leaves open
	case strings.Contains(s.target.name, "stand-in"):
		allowed = append(allowed, "/sys/fs/cgroup/cpu") // Go's runtime looks at the limit of CPU time
	}
	dir := fmt.Sprintf("/proc/%d/fd", v.get().GetStatus().GetProcess().GetVmmPid())
	fds, err := os.ReadDir(dir)
	s.must(err)
	for _, fd := range fds {
		to, err := os.Readlink(filepath.Join(dir, fd.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		ours := slices.ContainsFunc(allowed, func(prefix string) bool { return strings.HasPrefix(to, prefix) })
		if !ours || strings.HasSuffix(to, ".log") {
			s.t.Errorf("the VMM of %s has %s open as %s", v.name, to, fd.Name())
		}
	}
}

// secretIsKept looks where a secret of a specification is not to be.
func (n *node) secretIsKept(p *nodev1.ProcessStatus) {
	n.t.Helper()
	paths := []string{n.path("agent.log")}
	for _, log := range []string{"shim.log", "vmm.log", "exit.json"} {
		paths = append(paths, n.path("state", "vms", "two", log))
	}
	for _, pid := range []int64{p.GetVmmPid(), p.GetShimPid()} {
		paths = append(paths, fmt.Sprintf("/proc/%d/cmdline", pid), fmt.Sprintf("/proc/%d/environ", pid))
	}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			n.t.Error(err)
		}
		if bytes.Contains(content, []byte(secret)) {
			n.t.Errorf("%s has the user data of a VM in it", path)
		}
	}
}
