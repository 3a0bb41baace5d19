package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/disk"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/test/guest"
	"github.com/vmlet/vmlet/test/hugetlb"
)

func TestBootTypePowerOff(t *testing.T) {
	t.Parallel()
	forEachQEMU(t, func(t *testing.T, q qemu) {
		s := newScene(t)
		s.launch(s.plan(q))
		one, other := s.console(1<<20), s.console(0)
		one.expect(".*" + guest.UpLine)
		one.expect("count 1")
		one.send("x")
		one.expect("echo x")
		other.expect("echo x")

		exit, err := s.client.Stop(s.ctx, time.Minute)
		s.check(err)
		if exit.Reason != shim.ReasonShutdown || exit.Code != 0 || exit.GraceOver {
			t.Errorf("stop: %+v", exit)
		}
		one.expect(guest.PowerLine)
		select {
		case event := <-s.client.Events():
			if event.Exit == nil || event.Exit.Reason != shim.ReasonShutdown {
				t.Errorf("event %+v", event)
			}
		case <-s.ctx.Done():
			t.Error("no event")
		}
		s.client.Close()
		s.gone(shim.ReasonShutdown)
		log, err := os.ReadFile(filepath.Join(s.state, shim.ConsoleLogName))
		s.check(err)
		for _, want := range []string{guest.UpLine, "echo x", guest.PowerLine} {
			if !strings.Contains(string(log), want) {
				t.Errorf("console.log does not have %q:\n%s", want, log)
			}
		}
	})
}

func TestGuestPowersOff(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.launch(s.plan(anyQEMU(t)))
	s.console(0).send(string(guest.KeyPowerOff))
	s.gone(shim.ReasonShutdown)
}

// TestGuestSuspendsToDisk: QEMU's machine types offer it to guests, and it is told from a
// shutdown.
func TestGuestSuspendsToDisk(t *testing.T) {
	for _, machine := range []string{"q35", "pc"} {
		t.Run(machine, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			p := s.plan(anyQEMU(t))
			at := slices.Index(p.Args, "-machine") + 1
			p.Args[at] = strings.Replace(p.Args[at], "microvm", machine, 1)
			s.launch(p)
			c := s.console(1 << 20)
			c.count()
			c.send(string(guest.KeySuspend))
			s.gone(shim.ReasonSuspended)
		})
	}
}

func TestStopPausedGuest(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	p := s.plan(anyQEMU(t))
	p.Paused = true
	s.launch(p)
	if got := string(s.monitor("query-status")); !strings.Contains(got, `"running": false`) {
		t.Errorf("launched paused, and it is %s", got)
	}
	_, err := s.client.Stop(s.ctx, time.Minute)
	s.check(err)
	s.gone(shim.ReasonShutdown)
}

func TestStopGraceOver(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.writeKernel(guest.PVHOptions{IgnorePowerButton: true})
	s.launch(s.plan(anyQEMU(t)))
	s.console(1 << 20).count()
	first := make(chan error, 1)
	go func() {
		_, err := s.client.Stop(s.ctx, time.Hour)
		first <- err
	}()
	s.console(1 << 20).expect(guest.PowerLine)
	exit, err := s.client.Stop(s.ctx, time.Millisecond) // joins, and shortens
	s.check(err)
	s.check(<-first)
	if exit.Reason != shim.ReasonKilled || !exit.GraceOver || exit.Signal != "SIGKILL" || exit.Code != -1 {
		t.Errorf("exit %+v", exit)
	}
	s.gone(shim.ReasonKilled)
}

func TestKill(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.launch(s.plan(anyQEMU(t)))
	exit, err := s.client.Kill(s.ctx)
	s.check(err)
	if exit.Reason != shim.ReasonKilled || exit.GraceOver || exit.Signal != "SIGKILL" {
		t.Errorf("exit %+v", exit)
	}
	s.gone(shim.ReasonKilled)
}

func TestCrash(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.launch(s.plan(anyQEMU(t)))
	s.check(unix.Kill(s.vmmPID, unix.SIGSEGV))
	if exit := s.gone(shim.ReasonCrashed); exit.Signal != "SIGSEGV" {
		t.Errorf("exit %+v", exit)
	}
}

func TestTerminatedShimStopsGuest(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.launch(s.plan(anyQEMU(t)))
	s.console(1 << 20).count()
	s.check(unix.Kill(s.shimPID, unix.SIGTERM))
	s.gone(shim.ReasonShutdown)
}

// TestStopSignal: systemd sends it to all processes of the VM, and the guest shuts down.
func TestStopSignal(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.launch(s.plan(anyQEMU(t)))
	s.console(1 << 20).count()
	for _, pid := range []int{s.vmmPID, s.shimPID} {
		s.check(unix.Kill(pid, shim.StopSignal))
	}
	s.gone(shim.ReasonShutdown)
}

func TestKilledShimTakesVMM(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.launch(s.plan(anyQEMU(t)))
	vmm, err := unix.PidfdOpen(s.vmmPID, 0)
	s.check(err)
	defer unix.Close(vmm)
	s.check(unix.Kill(s.shimPID, unix.SIGKILL))
	ended := []unix.PollFd{{Fd: int32(vmm), Events: unix.POLLIN}}
	s.waitFor(func() bool {
		n, _ := unix.Poll(ended, 0)
		return n == 1
	})
	<-s.client.Done()
	s.waitFor(func() bool { return !shim.ProcessAlive(shim.ShimProcess{PID: s.shimPID}) })
	if p := s.process(); shim.ProcessAlive(p) {
		t.Errorf("the shim %+v counts as alive", p)
	}
}

func TestAgentComesBack(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.launch(s.plan(anyQEMU(t)))
	s.client.Close()
	client, err := shim.Dial(s.ctx, s.run)
	s.check(err)
	s.client = client
	if w := client.Welcome(); w.VMMPID != s.vmmPID || w.PID != s.shimPID || w.Saving || w.Launching {
		t.Errorf("welcome %+v", w)
	}
	s.goesOn()
	wantCode(t, client.Release(s.ctx, nil), shim.CodePrecondition)
	_, err = client.Kill(s.ctx)
	s.check(err)
	s.gone(shim.ReasonKilled)
}

func TestReleaseUnused(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.startShim()
	s.check(s.client.Release(s.ctx, nil))
	<-s.client.Done()
	s.waitFor(func() bool { return !alive(s.shimPID) })
	s.nothingLeft()
}

func TestUnusedShimEndsWithItsAgent(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.startShim()
	s.client.Close()
	s.waitFor(func() bool { return !alive(s.shimPID) })
	s.nothingLeft()
}

// A launch that fails leaves nothing and may be tried again.
func TestLaunchFails(t *testing.T) {
	t.Parallel()
	q := anyQEMU(t)
	s := newScene(t)
	s.startShim()
	text := filepath.Join(s.root, "text")
	s.check(os.WriteFile(text, []byte("QFI\xfb\x00\x00\x00\x03"), 0o600))
	fifo := filepath.Join(s.root, "fifo")
	s.check(unix.Mkfifo(fifo, 0o600))
	file := func(f plan.File) func(*plan.Plan) {
		return func(p *plan.Plan) { p.Files = append(p.Files, f) }
	}
	for _, test := range []struct {
		name  string
		spoil func(*plan.Plan)
		code  shim.Code
		texts []string
	}{
		{"VMM refuses", func(p *plan.Plan) { p.Args = append(p.Args, "-device", "nonesuch") }, shim.CodeInternal, []string{"exit status 1", "nonesuch"}},
		{"no program", func(p *plan.Plan) { p.Program = "/nonesuch/qemu" }, shim.CodePrecondition, []string{"/nonesuch/qemu", "no such file"}},
		{"other driver", func(p *plan.Plan) { p.VMM = "bochs" }, shim.CodeInvalid, []string{`"bochs"`}},
		{"missing file", file(plan.File{Kind: plan.FilePath, Field: "disks[1].path", Path: "/nonesuch/disk"}), shim.CodeInvalid, []string{"disks[1].path", "/nonesuch/disk"}},
		{"relative file", file(plan.File{Kind: plan.FilePath, Field: "disks[1].path", Path: "disk"}), shim.CodeInvalid, []string{"disks[1].path", "absolute"}},
		{"FIFO", file(plan.File{Kind: plan.FilePath, Field: "boot.initrd", Path: fifo}), shim.CodeInvalid, []string{"boot.initrd", "neither a regular file"}},
		{"our own descriptors", file(plan.File{Kind: plan.FilePath, Field: "disks[0].path", Path: "/proc/self/fd/0"}), shim.CodeInvalid, []string{"disks[0].path"}},
		{"other format", file(plan.File{Kind: plan.FilePath, Field: "disks[0].path", Path: text,
			Disk: &disk.Expectation{Field: "disks[0].path", Image: disk.Image{Path: text, Format: disk.Raw}}}), shim.CodeInvalid, []string{"disks[0].path", text}},
		{"changed disk", file(plan.File{Kind: plan.FilePath, Field: "disks[0].path", Path: s.kernel, Identity: &disk.Identity{Size: 1}}),
			shim.CodeChangedDisk, []string{"disks[0].path", s.kernel, "--allow-changed-disks"}},
		{"socket elsewhere", file(plan.File{Kind: plan.FileListen, Path: "../x.sock"}), shim.CodeInvalid, []string{"../x.sock"}},
		{"descriptor not sent", file(plan.File{Kind: plan.FileReceived, Field: "networks[0]", Index: 3}), shim.CodeInvalid, []string{"networks[0]", "descriptor 3"}},
		{"unknown kind", file(plan.File{Kind: "teapot", Field: "tea"}), shim.CodeInvalid, []string{"tea", "teapot"}},
		{"RAM is no huge pages", func(p *plan.Plan) { p.Memory.PageSize = 2 << 20 }, shim.CodeInvalid, []string{"memory.hugePages", "hugetlbfs"}},
		{"no such image", func(p *plan.Plan) { p.Restore = &plan.Restore{Directory: s.root, ImageID: "x"} }, shim.CodeInvalid, []string{"not a memory image"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := s.plan(q)
			test.spoil(p)
			_, err := s.client.Launch(s.ctx, shim.Launch{Plan: p}, nil, nil)
			wantCode(t, err, test.code, test.texts...)
			if _, err := os.Stat(s.ram); err == nil {
				t.Error("guest RAM is left")
			}
			if _, err := os.Stat(filepath.Join(s.run, "qmp.sock")); err == nil {
				t.Error("a socket is left")
			}
		})
	}
	launched, err := s.client.Launch(s.ctx, shim.Launch{Plan: s.plan(q)}, nil, nil)
	s.check(err)
	s.vmmPID = launched.VMMPID
	s.goesOn()
	_, err = s.client.Launch(s.ctx, shim.Launch{Plan: s.plan(q)}, nil, nil)
	wantCode(t, err, shim.CodePrecondition)
	_, err = s.client.Kill(s.ctx)
	s.check(err)
	s.gone(shim.ReasonKilled)
}

func TestLaunchRefusesUsedRAM(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.check(os.WriteFile(s.ram, []byte("another VM's"), 0o600))
	s.startShim()
	_, err := s.client.Launch(s.ctx, shim.Launch{Plan: s.plan(anyQEMU(t))}, nil, nil)
	wantCode(t, err, shim.CodeInternal, s.ram, "left over")
	if b, err := os.ReadFile(s.ram); string(b) != "another VM's" {
		t.Errorf("the file that was there: %q, %v", b, err)
	}
}

// hugePage is x86's, in bytes.
const hugePage = 2 << 20

func TestHugePages(t *testing.T) {
	mount := hugetlb.Mount(t, ramSize/hugePage)
	info, err := os.ReadFile("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
	if err != nil {
		t.Skipf("no huge pages: %v", err)
	}
	free, err := strconv.Atoi(strings.TrimSpace(string(info)))
	if err != nil {
		t.Fatal(err)
	}
	s := newScene(t)
	s.ram = filepath.Join(mount, "ram")
	s.startShim()
	q := anyQEMU(t)
	p := s.plan(q)
	p.Memory.PageSize = hugePage
	p.Memory.Size = uint64(free+1) * hugePage
	_, err = s.client.Launch(s.ctx, shim.Launch{Plan: p}, nil, nil)
	wantCode(t, err, shim.CodeInvalid, "memory.hugePages", "nr_hugepages")
	p.Memory.Size = ramSize + 4096
	_, err = s.client.Launch(s.ctx, shim.Launch{Plan: p}, nil, nil)
	wantCode(t, err, shim.CodeInvalid, "memory.size")
	p.Memory.PageSize, p.Memory.Size = 0, ramSize
	_, err = s.client.Launch(s.ctx, shim.Launch{Plan: p}, nil, nil)
	wantCode(t, err, shim.CodeInvalid, "memory.hugePages")
	if free < ramSize/hugePage {
		t.Skipf("only %d huge pages are free", free)
	}
	p.Memory.PageSize = hugePage
	_, err = s.client.Launch(s.ctx, shim.Launch{Plan: p}, nil, nil)
	s.check(err)
	s.console(1 << 20).expect("filled 8")
	dir := filepath.Join(s.root, "image")
	_, err = s.save(dir, false)
	s.check(err)
	s.client.Close()
	s.gone(shim.ReasonSaved)
	p = s.restorePlan(q, dir, false)
	p.Memory.PageSize = hugePage
	s.again(p)
	s.console(0).verify()
}

// The VMM's process has no more than it needs. The programs in the VMM's place say what the
// shim gives it: QEMU takes back some of it by itself.
func TestConfinement(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root to start the VMM as another user")
	}
	got := inPlaceOfVMM(t, "/bin/cat", "/proc/self/status", "/proc/self/limits", "/proc/self/coredump_filter")
	for _, want := range []string{
		"Uid:\t65534\t65534\t65534\t65534\n", "Gid:\t65534\t65534\t65534\t65534\n", "Groups:\t \n", "NoNewPrivs:\t1\n",
		"CapInh:\t0000000000000000\n", "CapPrm:\t0000000000000000\n", "CapEff:\t0000000000000000\n", "CapBnd:\t0000000000000000\n", "CapAmb:\t0000000000000000\n",
		"Max core file size        0                    0", "Max processes             8192                 8192", "\n00000000\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the VMM's status, limits and core filter do not have %q:\n%s", want, got)
		}
	}
	if env := inPlaceOfVMM(t, "/usr/bin/env"); env != "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nLC_ALL=C\n" {
		t.Errorf("the VMM's environment is %q", env)
	}
	if cwd := inPlaceOfVMM(t, "/bin/readlink", "/proc/self/cwd"); cwd != "/\n" {
		t.Errorf("the VMM's working directory is %q", cwd)
	}
	s := newScene(t)
	s.launch(s.plan(anyQEMU(t)))
	if st, err := os.Stat(s.ram); err != nil || st.Mode().Perm() != 0o600 || st.Sys().(*sysStat).Uid != 65534 {
		t.Errorf("guest RAM: %v, %v", st, err)
	}
}

// The VMM inherits the plan's descriptors and no others, also from a shim that was started
// with more.
func TestDescriptors(t *testing.T) {
	t.Parallel()
	said := inPlaceOfVMM(t, "/bin/ls", "-l", "/proc/self/fd")
	// As in scene.plan; the last is ls's own.
	want := []string{"/dev/null", "pipe:", "pipe:", "/dev/shm/", "socket:", "socket:", "/memfd:", "socket:", "/proc/"}
	found := regexp.MustCompile(`(?m) (\d+) -> (.*)$`).FindAllStringSubmatch(said, -1)
	if len(found) != len(want) {
		t.Fatalf("the VMM has %d descriptors, want %d:\n%s", len(found), len(want), said)
	}
	for i, m := range found {
		if m[1] != itoa(i) || !strings.HasPrefix(m[2], want[i]) {
			t.Errorf("descriptor %s of the VMM is %s, want %d and %s", m[1], m[2], i, want[i])
		}
	}
}

// inPlaceOfVMM is what a program prints that a shim starts as it does a VMM. The shim has
// a file open that its parent forgot to close.
func inPlaceOfVMM(t *testing.T, program string, args ...string) string {
	t.Helper()
	s := newScene(t)
	file, err := os.Open(s.kernel)
	s.check(err)
	defer file.Close()
	const above = 200                                               // the plan's files
	forgotten, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD, above) // without close-on-exec
	s.check(err)
	defer unix.Close(forgotten)
	p := s.plan(qemu{binary: program, accel: "tcg"})
	p.Args = args
	s.startShim()
	if to, err := os.Readlink(filepath.Join("/proc", itoa(s.shimPID), "fd", itoa(forgotten))); to != s.kernel {
		t.Fatalf("descriptor %d of the shim is %q, %v, want %s", forgotten, to, err, s.kernel)
	}
	if _, err = s.client.Launch(s.ctx, shim.Launch{Plan: p}, nil, nil); err == nil {
		t.Fatalf("%s was taken for a VMM", program)
	}
	said, err := os.ReadFile(filepath.Join(s.state, shim.VMMLogName))
	s.check(err)
	return string(said)
}
