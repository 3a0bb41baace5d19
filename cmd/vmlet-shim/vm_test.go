package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/test/everything"
	"github.com/vmlet/vmlet/test/guest"
	"github.com/vmlet/vmlet/test/suites"
	"github.com/vmlet/vmlet/vmm/driverkit"
	"github.com/vmlet/vmlet/vmm/qemu/wire"
	driverwire "github.com/vmlet/vmlet/vmm/remote/wire"
)

// patience bounds a test; nothing waits for as long unless it is broken.
const patience = 4 * time.Minute

// shimBinary is made once, by TestMain.
var shimBinary string

func TestMain(m *testing.M) {
	if os.Getenv(driverwire.CookieVariable) != "" { // a run of this program as a driver
		if driverkit.Run(context.Background(), driverkit.Stack{Version: "test", VMM: anyVMM{}}) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "vmlet-shim")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // for a pod's user
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	shimBinary = filepath.Join(dir, "vmlet-shim")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", shimBinary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as the Makefile does: libc takes 1.5 MiB
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v: %s\n", err, out)
		return 1
	}
	return suites.StartsVMs(m)
}

// qemu is one QEMU with one accelerator.
type qemu struct {
	binary string
	ten    bool // 8.2 or later, in which lazy restores work
	accel  string
}

// forEachQEMU runs a test under all QEMUs and accelerators of this machine, side by
// side. In the short form KVM is that of the newest.
func forEachQEMU(t *testing.T, test func(t *testing.T, q qemu)) {
	binaries := map[string]qemu{}
	if path, err := exec.LookPath("qemu-system-x86_64"); err == nil {
		binaries["own"] = qemu{binary: path, ten: hasROM(t, path)}
	}
	if path, err := guest.QEMU10(); err == nil {
		binaries["10"] = qemu{binary: path, ten: true}
	}
	if len(binaries) == 0 {
		t.Skip("no qemu-system-x86_64: run test/setup test")
	}
	for name, of := range binaries {
		for _, accel := range []string{"tcg", "kvm"} {
			q := of
			q.accel = accel
			t.Run(name+"/"+accel, func(t *testing.T) {
				t.Parallel()
				if accel == "kvm" {
					needKVM(t)
					if name == "own" && len(binaries) > 1 {
						everything.OrSkip(t, "QEMU 10 goes through it under KVM")
					}
				}
				test(t, q)
			})
		}
	}
}

func needKVM(t *testing.T) {
	kvm, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no KVM: %v", err)
	}
	kvm.Close()
}

// hasROM asks a QEMU for the property that a lazy restore needs.
func hasROM(t *testing.T, path string) bool {
	out, err := exec.Command(path, "-object", "memory-backend-file,help").CombinedOutput()
	if err != nil {
		t.Logf("%s: %v: %s", path, err, out)
	}
	return strings.Contains(string(out), "rom=")
}

// anyQEMU is for what does not depend on which.
func anyQEMU(t *testing.T) qemu {
	path, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		if path, err = guest.QEMU10(); err != nil {
			t.Skip("no qemu-system-x86_64: run test/setup test")
		}
	}
	return qemu{binary: path, accel: "tcg"}
}

func lazyQEMU(t *testing.T) qemu {
	q := anyQEMU(t)
	if q.ten = hasROM(t, q.binary); q.ten {
		return q
	}
	path, err := guest.QEMU10()
	if err != nil {
		t.Skipf("no QEMU that restores lazily: %v", err)
	}
	return qemu{path, true, "tcg"}
}

// ramSize of the test's guests, in bytes.
const ramSize = 64 << 20

// pattern that they check themselves: a few words of each page, as a KVM that emulates
// each instruction takes seconds for more.
func pattern() guest.Pattern { return guest.Pattern{Address: 16 << 20, MiB: 8, Seed: 5, Words: 4} }

// scene is a VM's folders, and what else a test needs for it.
type scene struct {
	t          *testing.T
	ctx        context.Context
	root       string
	run, state string
	ram        string
	kernel     string
	client     *shim.Client
	shimPID    int
	vmmPID     int
}

func newScene(t *testing.T) *scene {
	t.Helper()
	ctx, cancel := suites.Wait(t.Context(), t, patience)
	t.Cleanup(cancel)
	s := &scene{t: t, ctx: ctx, root: t.TempDir()}
	s.kernel = filepath.Join(s.root, "kernel")
	s.writeKernel(guest.PVHOptions{Memory: pattern()})
	ramDir, err := os.MkdirTemp("/dev/shm", "vmlet-test")
	s.check(err)
	t.Cleanup(func() { os.RemoveAll(ramDir) })
	s.ram = filepath.Join(ramDir, "ram")
	s.newFolders()
	return s
}

func (s *scene) writeKernel(o guest.PVHOptions) {
	s.t.Helper()
	elf, err := guest.PVH(o)
	s.check(err)
	s.check(os.WriteFile(s.kernel, elf, 0o600)) // not for the VMM's user to read
}

// newFolders makes run and state folders for another shim.
func (s *scene) newFolders() {
	s.t.Helper()
	dir, err := os.MkdirTemp(s.root, "vm")
	s.check(err)
	// Longer than a socket's address: paths to sockets must not matter.
	s.run = filepath.Join(dir, strings.Repeat("r", 120))
	s.state = filepath.Join(dir, "state")
	s.check(os.Mkdir(s.run, 0o700))
	s.check(os.Mkdir(s.state, 0o700))
}

func (s *scene) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// startShim starts a shim, and sees to its end.
func (s *scene) startShim() {
	s.t.Helper()
	client, pid, err := shim.Start(s.ctx, shim.StartOptions{
		Binary: shimBinary, RunDir: s.run, StateDir: s.state, RunID: "run-1", Grace: patience,
	})
	s.check(err)
	s.client, s.shimPID = client, pid
	process, err := shim.OpenProcess(s.process())
	s.check(err)
	state := s.state
	s.t.Cleanup(func() {
		client.Close()
		_ = unix.PidfdSendSignal(int(process.Fd()), unix.SIGKILL, nil, 0) // it has mostly ended
		process.Close()
		if s.t.Failed() {
			for _, name := range []string{shim.ShimLogName, shim.VMMLogName} {
				log, _ := os.ReadFile(filepath.Join(state, name))
				s.t.Logf("%s: %s", name, log)
			}
		}
	})
}

func (s *scene) process() shim.ShimProcess {
	s.t.Helper()
	p, err := shim.ReadShimProcess(s.run)
	s.check(err)
	return *p
}

// plan boots the PVH guest.
func (s *scene) plan(q qemu) *plan.Plan {
	p := &plan.Plan{
		Name: "test", ID: "00000000-0000-4000-8000-000000000001", VMM: "qemu", Program: q.binary,
		Memory: plan.Memory{Size: ramSize, Path: s.ram},
		Files: []plan.File{
			{Kind: plan.FileMemory, Field: "memory"},
			{Kind: plan.FileConsole},
			{Kind: plan.FileListen, Path: wire.ShimMonitor},
			{Kind: plan.FilePath, Path: s.kernel, Field: "boot.kernel", Reopened: true},
			{Kind: plan.FileListen, Path: "qmp.sock"},
		},
		Args: []string{
			"-nodefaults", "-no-user-config", "-display", "none",
			"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
			"-machine", "microvm,memory-backend=ram", "-accel", q.accel, "-m", "64",
			"-chardev", "socket,id=console,fd=4", "-serial", "chardev:console",
			"-chardev", "socket,id=shim,fd=5,server=on,wait=off", "-mon", "chardev=shim,mode=control",
			"-chardev", "socket,id=agent,fd=7,server=on,wait=off", "-mon", "chardev=agent,mode=control",
			"-kernel", "/proc/self/fd/6", "-object",
		},
	}
	p.Args = append(p.Args, "memory-backend-file,id=ram,size=64M,mem-path=/proc/self/fd/3,share=on")
	if q.accel == "tcg" && os.Geteuid() == 0 {
		p.User = &plan.User{UID: 65534, GID: 65534} // under KVM its device is root's alone, perhaps
	}
	return p
}

// restorePlan goes on from an image.
func (s *scene) restorePlan(q qemu, dir string, lazy bool) *plan.Plan {
	s.t.Helper()
	img, err := memory.Open(dir)
	s.check(err)
	defer img.Close()
	p := s.plan(q)
	p.Restore = &plan.Restore{Directory: dir, ImageID: img.Manifest().ID, Lazy: lazy}
	p.Args = append(p.Args, "-S", "-incoming", "defer")
	if lazy {
		p.Memory.Path = ""
		i := len(p.Args) - 4
		p.Args[i] = strings.Replace(p.Args[i], "share=on", "share=off,readonly=on,rom=off", 1)
	}
	return p
}

// launch starts a shim and a VMM in it.
func (s *scene) launch(p *plan.Plan) {
	s.t.Helper()
	s.startShim()
	launched, err := s.client.Launch(s.ctx, shim.Launch{Plan: p}, nil, nil)
	s.check(err)
	s.vmmPID = launched.VMMPID
}

// again launches a plan with folders of its own.
func (s *scene) again(p *plan.Plan) {
	s.t.Helper()
	s.newFolders()
	s.launch(p)
}

func (s *scene) save(dir string, keep bool) (*shim.Committed, error) {
	s.t.Helper()
	if _, err := s.client.Save(s.ctx, s.saveArgs(dir), nil, nil); err != nil {
		return nil, err
	}
	return s.client.Commit(s.ctx, shim.Commit{KeepRunning: keep})
}

func (s *scene) saveArgs(dir string) shim.Save {
	return shim.Save{Directory: dir, Manifest: memory.Manifest{VMM: memory.VMM{Name: "qemu", Version: "test"}}}
}

// terminal is a client of the console.
type terminal struct {
	t     *testing.T
	conn  net.Conn
	lines *bufio.Reader
}

func (s *scene) console(backlog int) *terminal {
	s.t.Helper()
	conn, err := s.client.Console(s.ctx, backlog)
	s.check(err)
	s.t.Cleanup(func() { conn.Close() })
	context.AfterFunc(s.ctx, func() { conn.SetDeadline(time.Now()) })
	return &terminal{s.t, conn, bufio.NewReader(conn)}
}

// expect reads up to a line that matches and returns what its group matched.
func (c *terminal) expect(pattern string) string {
	c.t.Helper()
	re := regexp.MustCompile("^" + pattern + "$")
	var seen []string
	for {
		line, err := c.lines.ReadString('\n')
		line = strings.TrimRight(line, "\r\n")
		seen = append(seen, line)
		if found := re.FindStringSubmatch(line); found != nil {
			return found[len(found)-1]
		}
		if err != nil {
			c.t.Fatalf("console: %v while waiting for %q; it said:\n%s", err, pattern, strings.Join(seen[max(0, len(seen)-30):], "\n"))
		}
	}
}

func (c *terminal) count() int {
	c.t.Helper()
	n, err := strconv.Atoi(c.expect(`count (\d+)`))
	if err != nil {
		c.t.Fatal(err)
	}
	return n
}

func (c *terminal) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c.conn, text); err != nil {
		c.t.Fatal(err)
	}
}

// verify has the guest check its memory.
func (c *terminal) verify() {
	c.t.Helper()
	c.send(string(guest.KeyVerify))
	if got, want := c.expect("(verified|corrupt) (.*)"), fmt.Sprintf("%08x", pattern().Sum()); got != want {
		c.t.Fatalf("the guest's memory: %s, want %s", got, want)
	}
}

// goesOn sees that the guest runs.
func (s *scene) goesOn() {
	s.t.Helper()
	c := s.console(0)
	first := c.count()
	if next := c.count(); next != first+1 {
		s.t.Fatalf("after %d the guest counts %d", first, next)
	}
	c.conn.Close()
}

// gone waits until a process has ended, and sees that nothing is left of the VM.
func (s *scene) gone(want shim.Reason) *shim.Exit {
	s.t.Helper()
	select {
	case <-s.client.Done():
	case <-s.ctx.Done():
		s.t.Fatal("the shim does not end")
	}
	s.waitFor(func() bool { return !alive(s.shimPID) })
	exit, err := shim.ReadExit(s.state)
	s.check(err)
	if exit.Reason != want || exit.RunID != "run-1" || exit.Time.IsZero() {
		s.t.Errorf("exit.json: %+v, want reason %s of run-1", exit, want)
	}
	s.nothingLeft()
	return exit
}

func (s *scene) nothingLeft() {
	s.t.Helper()
	left, err := os.ReadDir(s.run)
	s.check(err)
	for _, f := range left {
		s.t.Errorf("left in the run folder: %s", f.Name())
	}
	if _, err := os.Stat(s.ram); !errors.Is(err, os.ErrNotExist) {
		s.t.Errorf("guest RAM is left: %v", err)
	}
}

// waitFor polls for what no event tells.
func (s *scene) waitFor(done func() bool) {
	s.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			s.t.Fatal("it does not come about")
		}
	}
}

func alive(pid int) bool { return unix.Kill(pid, 0) == nil }

// noImage sees that a failed save has left nothing.
func (s *scene) noImage(dir string) {
	s.t.Helper()
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		s.t.Errorf("%s is left: %v", dir, err)
	}
}

func wantCode(t *testing.T, err error, code shim.Code, texts ...string) {
	t.Helper()
	var e *shim.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("error %v, want one with code %s", err, code)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q does not have %q", err, text)
		}
	}
}

// monitor runs a command on the agent's monitor.
func (s *scene) monitor(command string) json.RawMessage {
	s.t.Helper()
	conn, err := shim.DialSocket(s.ctx, s.run, "qmp.sock")
	s.check(err)
	defer conn.Close()
	in := json.NewDecoder(conn)
	var reply map[string]json.RawMessage
	s.check(in.Decode(&reply))
	for _, c := range []string{"qmp_capabilities", command} {
		s.check(json.NewEncoder(conn).Encode(map[string]string{"execute": c}))
		for reply = nil; reply["return"] == nil && reply["error"] == nil; {
			s.check(in.Decode(&reply))
		}
	}
	return reply["return"]
}
