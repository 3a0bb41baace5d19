package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/fingerprint"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/test/guest"
)

func TestParsePod(t *testing.T) {
	for _, test := range []struct {
		args string
		want string // of the error; empty: none
	}{
		{"/vm.yaml", ""},
		{"--restore /saved --lazy --allow-changed-disks --new-identity", ""},
		{"--grace 5s --volume /v --vmlet /bin/vmlet --termination-log /log --verbose /vm.yaml", ""},
		{"--paused --no-console-log /vm.yaml", ""},
		{"", "name the specification"},
		{"a b", `unexpected argument "b"`},
		{"--restore /saved a", "leave out the one"},
		{"--restore saved", "not an absolute path"},
		{"--volume run a", "not an absolute path"},
		{"--state /v/state a", ""},
		{"--state state a", "not an absolute path"},
		{"--preparation /p.json --made /made --sockets /sockets /vm.json", ""},
		{"--preparation /p.json --restore /saved", "an image has its own disks"},
		{"--restore /saved --once --paused", ""},
		{"--restore /saved --once --lazy", "leave out the one or the other"},
		{"--once /vm.json", "about the image to --restore"},
		{"--restore /saved --watched-devices", ""},
		{"--watched-devices /vm.json", "about the image to --restore"},
		{"--restore /saved --once --attached", ""},
		{"--attached /vm.json", "about an image to --restore"},
		{"--restore /saved --attached --lazy", "about an image to --restore"},
		{"--grace 0s a", "not positive"},
		{"--grace -1s a", "not positive"},
		{"--teapot a", "teapot"},
		{"--grace long a", "long"},
		{"--help", "help requested"},
	} {
		o, err := parsePod(strings.Fields(test.args), io.Discard)
		if test.want == "" && (err != nil || !filepath.IsAbs(o.vmlet) || !filepath.IsAbs(o.terminationLog)) {
			t.Errorf("%q: %+v, %v", test.args, o, err)
		}
		if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%q: error %v, want %q", test.args, err, test.want)
		}
	}
}

func TestPodDescribes(t *testing.T) {
	p := newPodScene(t)
	p.container()
	p.connect()
	w := p.client.Welcome()
	if w.Pod == nil || w.Pod.RunDir != p.volume || w.Pod.RunID == "" || w.VMMPID != 0 {
		t.Errorf("welcome %+v", w)
	}
	d, err := p.client.Describe(p.ctx, shim.Describe{})
	p.check(err)
	if string(d.Specification) != podText || d.SpecificationName != p.specification || d.Restore != nil || string(d.VMMs) != `[{"name":"qemu","said":"this"}]` {
		t.Errorf("%+v", d)
	}
	// It is asked each time: the agent may have given it a device since.
	p.says(`echo '[]'`)
	d, err = p.client.Describe(p.ctx, shim.Describe{})
	p.check(err)
	if string(d.VMMs) != "[]" {
		t.Errorf("%s", d.VMMs)
	}
	// Unless it has the very files of the agent's VMMs.
	sum, err := fingerprint.Content([]string{p.specification, "/no/such/program"})
	p.check(err)
	for sum, same := range map[string]bool{sum: true, "another": false, "": false} {
		d, err = p.client.Describe(p.ctx, shim.Describe{Files: []string{p.specification, "/no/such/program"}, Sum: sum})
		p.check(err)
		if d.SameVMMs != same || (len(d.VMMs) == 0) != same {
			t.Errorf("%q, with the sum %q: same %v, want %v", d.VMMs, sum, d.SameVMMs, same)
		}
	}
	for script, want := range map[string]string{
		"echo no QEMU >&2; exit 3":                 "no QEMU",
		"head -c 5000000 /dev/zero":                "more than 196608 bytes",
		"head -c 1000000 /dev/zero >&2; exit 4":    "exit status 4",
		"exit 0":                                   "no JSON",
		"sleep 600 & echo not in time >&2; exit 5": "exit status 5",
	} {
		p.says(script)
		_, err := p.client.Describe(p.ctx, shim.Describe{})
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 64<<10 {
			t.Errorf("%s: %.200v, want %q", script, err, want)
		}
	}
	p.client.Close()
	p.check(p.cmd.Process.Signal(unix.SIGTERM))
	p.wantExit(0)
}

// TestPodRuns: a whole life, with two agents.
func TestPodRuns(t *testing.T) { forEachPodVMM(t, testPodRuns) }

func testPodRuns(t *testing.T, v podVMM) {
	p := v.scene(t)
	for name, content := range map[string]string{shim.RAMName: "the last run's", shim.ExitName: "{}", shim.SocketName: "", shim.VMMFolderName + "/save/memory-ranges": "its"} {
		path := filepath.Join(p.volume, name)
		p.check(os.MkdirAll(filepath.Dir(path), 0o700))
		p.check(os.WriteFile(path, []byte(content), 0o600))
		p.give(path, filepath.Dir(path))
	}
	p.give(filepath.Join(p.volume, shim.VMMFolderName))
	p.container()
	p.connect()
	if _, err := shim.ReadExit(p.volume); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the last run's end is left: %v", err)
	}
	for _, name := range []string{shim.RAMName, shim.VMMFolderName} {
		if _, err := os.Stat(filepath.Join(p.volume, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the last run's %s is left: %v", name, err)
		}
	}
	// An agent that is lost before it has launched anything ends nothing.
	first := p.client.Welcome()
	p.client.Close()
	p.connect()
	p.boot(nil)
	p.waitFor(func() bool { return strings.Contains(p.stdout.String(), guest.UpLine) })
	p.client.Close()

	p.connect()
	w := p.client.Welcome()
	if w.Pod == nil || w.Pod.RunID != first.Pod.RunID || w.VMMPID != p.vmmPID || string(w.Keep) != `{"kept":"this"}` {
		t.Errorf("welcome %+v", w)
	}
	p.goesOn()
	exit, err := p.client.Stop(p.ctx, time.Minute)
	p.check(err)
	if exit.Reason != shim.ReasonShutdown || exit.RunID != w.Pod.RunID {
		t.Errorf("%+v", exit)
	}
	p.client.Close()
	p.wantExit(0)
	if text := p.stdout.String(); !strings.Contains(text, guest.PowerLine) || strings.Contains(text, "level=") {
		t.Errorf("standard output: %q", text)
	}
}

// TestPodConsoleNotLogged: the console is there, and the container's log has nothing of it.
func TestPodConsoleNotLogged(t *testing.T) { forEachPodVMM(t, testPodConsoleNotLogged) }

func testPodConsoleNotLogged(t *testing.T, v podVMM) {
	p := v.scene(t)
	p.container("--no-console-log", p.specification)
	p.connect()
	p.boot(nil)
	p.console(1 << 20).expect(guest.UpLine)
	_, err := p.client.Stop(p.ctx, time.Minute)
	p.check(err)
	p.client.Close()
	p.wantExit(0)
	if text := p.stdout.String(); text != "" {
		t.Errorf("standard output: %q", text)
	}
}

// TestPodKeepsState: firmware variables are where a pod after this one finds them, and it
// goes on with what is there.
func TestPodKeepsState(t *testing.T) {
	p := podQEMU(t).scene(t)
	state, template := filepath.Join(p.root, "made", "state"), filepath.Join(p.root, "template")
	p.check(os.WriteFile(template, []byte("as delivered"), 0o644))
	vars := filepath.Join(state, "uefi-vars.fd")
	run := func() {
		p.container("--state", state, p.specification)
		p.connect()
		if got := p.client.Welcome().Pod.StateDir; got != state {
			t.Fatalf("the agent hears of %q", got)
		}
		p.boot(func(l *shim.Launch) {
			l.Plan = p.vmm.plan(p)
			l.Plan.Files = append(l.Plan.Files, plan.File{Kind: plan.FilePath, Path: vars, Template: template, Write: true})
		})
		_, err := p.client.Stop(p.ctx, time.Minute)
		p.check(err)
		p.client.Close()
		p.wantExit(0)
	}
	run()
	content, err := os.ReadFile(vars)
	if err != nil || string(content) != "as delivered" {
		t.Fatalf("%q, %v", content, err)
	}
	p.check(os.WriteFile(vars, []byte("as the guest left them"), 0o600))
	run()
	if content, err := os.ReadFile(vars); err != nil || string(content) != "as the guest left them" {
		t.Errorf("%q, %v", content, err)
	}
}

// TestPodStateCantBeMade is said to the pod's owner.
func TestPodStateCantBeMade(t *testing.T) {
	p := newPodScene(t)
	p.container("--state", filepath.Join(p.specification, "state"), p.specification)
	p.wantExit(exitFailed, "--state", "not a directory")
}

// TestPodSignal: the guest has the grace that the agent has told, and no more.
func TestPodSignal(t *testing.T) { forEachPodVMM(t, testPodSignal) }

func testPodSignal(t *testing.T, v podVMM) {
	t.Run("it shuts down", func(t *testing.T) {
		p := v.scene(t)
		p.container()
		p.connect()
		p.boot(nil)
		p.console(1 << 20).count()
		p.check(p.cmd.Process.Signal(unix.SIGTERM))
		p.wantExit(0)
		if exit, err := shim.ReadExit(p.volume); err != nil || exit.Reason != shim.ReasonShutdown {
			t.Errorf("%+v, %v", exit, err)
		}
	})
	t.Run("it does not", func(t *testing.T) {
		p := v.scene(t)
		p.writeKernel(guest.PVHOptions{IgnorePowerButton: true})
		p.container("--grace", "1h", p.specification)
		p.connect()
		p.boot(func(l *shim.Launch) { l.Grace = new(time.Millisecond) })
		p.console(1 << 20).count()
		p.check(p.cmd.Process.Signal(unix.SIGTERM))
		p.wantExit(0)
		if exit, err := shim.ReadExit(p.volume); err != nil || exit.Reason != shim.ReasonKilled || !exit.GraceOver {
			t.Errorf("%+v, %v", exit, err)
		}
	})
}

// TestPodExitCodes: by them the kubelet tells whether to start the container again.
func TestPodExitCodes(t *testing.T) { forEachPodVMM(t, testPodExitCodes) }

func testPodExitCodes(t *testing.T, v podVMM) {
	for _, test := range []struct {
		name string
		end  func(p *podScene)
		code int
		said []string
	}{
		{"killed", func(p *podScene) { _, err := p.client.Kill(p.ctx); p.check(err) }, 0, nil},
		{"saved", func(p *podScene) { p.save(filepath.Join(p.root, "image"), false) }, 0, []string{savedWords}},
		{"powered off", func(p *podScene) { p.console(0).send(string(guest.KeyPowerOff)) }, 0, nil},
		{"crashed", func(p *podScene) { p.check(unix.Kill(p.vmmPID, unix.SIGKILL)) }, 1, []string{"ended unexpectedly", "SIGKILL"}},
		{"not seen through", func(p *podScene) {
			_, err := p.client.Fail(p.ctx, *refusal("its monitor can't be reached " + strings.Repeat("x", 8192)))
			p.check(err)
		}, 1, []string{"its monitor can't be reached"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := v.scene(t)
			p.container()
			p.connect()
			p.boot(nil)
			p.console(1 << 20).count()
			test.end(p)
			p.client.Close()
			p.wantExit(test.code, test.said...)
			if st, err := os.Stat(p.terminationLog); err != nil || st.Size() > contract.MaxEnding {
				t.Errorf("%v, %v", st, err)
			}
		})
	}
}

func TestPodRefused(t *testing.T) {
	p := newPodScene(t)
	p.container()
	p.connect()
	p.check(p.client.Release(p.ctx, refusal("memory.size: more than the volume")))
	p.wantExit(1, "memory.size: more than the volume")
}

// TestPodLaunchFails: it is the agent that says what becomes of the pod then.
func TestPodLaunchFails(t *testing.T) { forEachPodVMM(t, testPodLaunchFails) }

func testPodLaunchFails(t *testing.T, v podVMM) {
	p := v.scene(t)
	p.container()
	p.connect()
	own := v.plan(p)
	own.User, own.Args = nil, append(own.Args, v.badArgs...)
	_, err := p.client.Launch(p.ctx, shim.Launch{Plan: own}, nil, nil)
	wantCode(t, err, shim.CodeInternal, "nonesuch")
	p.check(p.client.Release(p.ctx, refusal(err.Error())))
	p.wantExit(1, "nonesuch")
}

// TestPodHasNoVolume: what is wrong with it is said at once.
func TestPodHasNoVolume(t *testing.T) {
	p := newPodScene(t)
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"no folder", []string{"--volume", p.volume + "2", p.specification}, "medium Memory"},
		{"a file", []string{"--volume", p.specification, p.specification}, "medium Memory"},
		{"a disk", []string{"--volume", p.disk(), p.specification}, "not on a tmpfs"},
		{"no specification", []string{filepath.Join(p.root, "nonesuch")}, "nonesuch"},
		{"a folder for one", []string{p.root}, "is a directory"},
		{"an endless specification", []string{"/dev/zero"}, "more than 65536 bytes"},
		{"no image", []string{"--restore", p.root}, memory.ManifestName},
	} {
		t.Run(test.name, func(t *testing.T) {
			p.container(test.args...)
			p.wantExit(1, test.want)
		})
	}
	p.container()
	p.connect()
	second := &podScene{scene: p.scene, uid: p.uid, volume: p.volume, specification: p.specification, vmlet: p.vmlet, terminationLog: p.terminationLog}
	second.container()
	select {
	case <-second.ended:
	case <-p.ctx.Done():
		t.Fatal("a second shim does not end")
	}
	if text := second.stderr.String(); second.cmd.ProcessState.ExitCode() != contract.ExitUnknown || !strings.Contains(text, "another vmlet-shim") {
		t.Errorf("a second shim: %v, %s", second.cmd.ProcessState, text)
	}
	_, err := p.client.Describe(p.ctx, shim.Describe{})
	p.check(err) // the first one's socket is still its own
}

// disk is a folder that is on no tmpfs.
func (p *podScene) disk() string {
	var fs unix.Statfs_t
	p.check(unix.Statfs(p.root, &fs))
	if fs.Type != unix.TMPFS_MAGIC {
		return p.root
	}
	return "/proc"
}

// TestPodRestores: the agent is given the manifest, and the shim reads the image.
func TestPodRestores(t *testing.T) { forEachPodVMM(t, testPodRestores) }

func testPodRestores(t *testing.T, v podVMM) {
	p := v.scene(t)
	first, second := filepath.Join(p.root, "image"), filepath.Join(p.root, "again")
	p.container()
	p.connect()
	p.boot(nil)
	p.console(1 << 20).expect("filled 8")
	p.save(first, true)
	p.goesOn()
	p.check(memory.Remove(first))
	words := p.save(first, false)
	p.client.Close()
	p.wantExit(0, words)

	p.restore(first, "--allow-changed-disks", "--new-identity")
	p.console(0).verify()
	_, err := p.client.Kill(p.ctx)
	p.check(err)
	p.client.Close()
	p.wantExit(0)

	if !v.lazy {
		return
	}
	p.restore(first, "--lazy")
	p.console(0).verify()
	words = p.save(second, false)
	p.client.Close()
	p.wantExit(0, words)
	p.restore(second)
	p.console(0).verify()
}

// restore has the container go on from an image, with these flags beside.
func (p *podScene) restore(dir string, flags ...string) {
	p.t.Helper()
	p.container(append([]string{"--restore", dir}, flags...)...)
	p.connect()
	d, err := p.client.Describe(p.ctx, shim.Describe{})
	p.check(err)
	image, err := memory.Open(dir)
	p.check(err)
	defer image.Close()
	manifest, err := image.Manifest().Head()
	p.check(err)
	want := shim.PodRestore{
		Directory: dir, Manifest: manifest, Lazy: slices.Contains(flags, "--lazy"),
		AllowChangedDisks: slices.Contains(flags, "--allow-changed-disks"), NewIdentity: slices.Contains(flags, "--new-identity"),
	}
	if d.Restore == nil || !reflect.DeepEqual(*d.Restore, want) || d.Specification != nil {
		p.t.Fatalf("%+v", d)
	}
	p.boot(func(l *shim.Launch) { l.Plan = p.vmm.restore(p, dir, want.Lazy) })
}

// TestPodOutputIsNotTaken: a container's runtime that stands still, or has gone,
// keeps neither the guest nor the shim.
func TestPodOutputIsNotTaken(t *testing.T) { forEachPodVMM(t, testPodOutputIsNotTaken) }

func testPodOutputIsNotTaken(t *testing.T, v podVMM) {
	for _, gone := range []bool{false, true} {
		t.Run(fmt.Sprint("gone ", gone), func(t *testing.T) {
			p := v.scene(t)
			read, write, err := os.Pipe()
			p.check(err)
			defer read.Close()
			_, err = unix.FcntlInt(write.Fd(), unix.F_SETPIPE_SZ, 4096)
			p.check(err)
			p.cmd = p.command(p.specification)
			p.cmd.Stdout, p.cmd.Stderr = write, write
			p.check(p.cmd.Start())
			write.Close()
			if gone {
				read.Close()
			}
			p.ended = make(chan struct{})
			go func() { _ = p.cmd.Wait(); close(p.ended) }()
			t.Cleanup(func() { _ = p.cmd.Process.Kill(); <-p.ended })
			p.connect()
			p.boot(nil)
			c := p.console(0)
			c.send(strings.Repeat("z", 8192)) // the guest echoes it
			ctx, cancel := context.WithCancel(p.ctx)
			defer cancel()
			p.waitFor(func() bool {
				log, _ := os.ReadFile(filepath.Join(p.volume, shim.ConsoleLogName))
				return ctx.Err() == nil && len(log) > 3*4096
			})
			_, err = p.client.Kill(p.ctx)
			p.check(err)
			p.client.Close()
			p.wantExit(0)
		})
	}
}
