package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/control"
)

func TestLaunchIsUndone(t *testing.T) {
	// hang makes the VMM's monitor answer no more until the launch is given up.
	hang := func(reached chan<- struct{}) func(context.Context) error {
		return func(ctx context.Context) error {
			close(reached)
			<-ctx.Done()
			return context.Cause(ctx)
		}
	}
	for _, test := range []struct {
		name   string
		giveUp func(s *scene, cancel func())
		code   shim.Code // of the launch's error; empty: there is nobody to tell
	}{
		{"by a context", func(_ *scene, cancel func()) { cancel() }, shim.CodeCancelled},
		{"by kill", func(s *scene, _ func()) {
			_, err := s.client.Kill(s.ctx)
			wantCode(s.t, err, shim.CodePrecondition)
		}, shim.CodeCancelled},
		{"by the loss of the agent", func(s *scene, _ func()) { s.client.Close() }, ""},
		{"by the shim's end", func(s *scene, _ func()) { s.stop() }, shim.CodeCancelled},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newScene(t, nil)
			reached := make(chan struct{})
			s.driver.onConnect(hang(reached))
			ctx, cancel := context.WithCancel(s.ctx)
			defer cancel()
			launched := make(chan error)
			go func() {
				_, err := s.client.Launch(ctx, shim.Launch{Plan: s.plan("well")}, nil, nil)
				launched <- err
			}()
			<-reached
			test.giveUp(s, cancel)
			if err := <-launched; test.code != "" {
				wantCode(t, err, test.code)
			} else if !errors.Is(err, shim.ErrDisconnected) {
				t.Errorf("error %v", err)
			}
			s.waitFor(func() bool { _, err := shim.ReadExit(s.options.StateDir); return err == nil })
			s.noFile(s.ram)
			exit, err := shim.ReadExit(s.options.StateDir)
			s.check(err)
			if exit.Reason != shim.ReasonFailed || exit.Signal != "SIGKILL" {
				t.Errorf("exit %+v", exit)
			}
		})
	}
}

// A VMM that dies is not waited for, and its words are the error.
func TestVMMDiesInLaunch(t *testing.T) {
	s := newScene(t, nil)
	silent := func(ctx context.Context) error {
		<-ctx.Done() // a monitor that would never answer
		return ctx.Err()
	}
	s.driver.onConnect(silent)
	_, err := s.client.Launch(s.ctx, shim.Launch{Plan: s.plan("dead")}, nil, nil)
	wantCode(t, err, shim.CodeInternal)
	for _, want := range []string{"exit status 3", "fake VMM: dead"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not have %q", err, want)
		}
	}
	s.noFile(s.ram)
	s.noFile(filepath.Join(s.options.RunDir, monitorSocket))
	// Its socket goes a moment before it is reaped.
	s.driver.onConnect(func(context.Context) error { return unix.ECONNREFUSED })
	_, err = s.client.Launch(s.ctx, shim.Launch{Plan: s.plan("dead")}, nil, nil)
	if wantCode(t, err, shim.CodeInternal); !strings.Contains(err.Error(), "fake VMM: dead") {
		t.Errorf("error %q does not have its words", err)
	}
	s.driver.onConnect(silent)
	s.driver.onExplain(&shim.Error{Code: shim.CodePrecondition, Field: "disks[0].path", Message: "/a.img: in use"})
	_, err = s.client.Launch(s.ctx, shim.Launch{Plan: s.plan("dead")}, nil, nil)
	wantCode(t, err, shim.CodePrecondition)
	if want := "disks[0].path: /a.img: in use: " + filepath.Base(os.Args[0]) + " ended with exit status 3, saying: FAKE VMM: DEAD"; err.Error() != want {
		t.Errorf("error %q, want %q", err, want)
	}
	s.driver.onConnect(nil)
	s.launch()
}

func TestSaveFaults(t *testing.T) {
	broken := errors.New("broken")
	s := newScene(t, nil)
	pid := s.launch()
	image := filepath.Join(s.root, "image")
	prepare := func() error {
		_, err := s.client.Save(s.ctx, s.saveArgs(image), nil, nil)
		return err
	}
	goesOn := func(t *testing.T) {
		t.Helper()
		s.waitFor(s.machine.isRunning)
		s.waitFor(func() bool { _, err := os.Lstat(image); return err != nil })
		s.waitFor(s.nothingNoted)
	}
	t.Run("the VMM can't save", func(t *testing.T) {
		s.machine.onSave(func(_ context.Context, f *os.File) error {
			f.WriteString("half a sta")
			return broken
		})
		err := prepare()
		wantCode(t, err, shim.CodeInternal)
		if !strings.Contains(err.Error(), broken.Error()) {
			t.Errorf("error %v", err)
		}
		goesOn(t)
	})
	for name, save := range map[string]func(context.Context) error{
		"the VMM's state has no end": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"the VMM's state is huge":    func(context.Context) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			s.machine.onSave(func(ctx context.Context, f *os.File) error {
				return errors.Join(f.Truncate(maxState+1), save(ctx))
			})
			err := prepare()
			wantCode(t, err, shim.CodeInternal)
			if !strings.Contains(err.Error(), "written more than 512 MiB") {
				t.Errorf("error %v", err)
			}
			goesOn(t)
		})
	}
	s.machine.onSave(func(context.Context, *os.File) error { return broken })
	t.Run("and the guest does not go on at once", func(t *testing.T) {
		tries := 0
		s.machine.onContinue(func() error {
			if tries++; tries < 3 {
				return broken
			}
			return nil
		})
		wantCode(t, prepare(), shim.CodeInternal)
		goesOn(t)
		if tries != 3 {
			t.Errorf("%d tries", tries)
		}
	})
	t.Run("or never", func(t *testing.T) {
		s.machine.onContinue(func() error { return broken })
		err := prepare()
		wantCode(t, err, shim.CodeInternal)
		if !strings.Contains(err.Error(), "is paused") {
			t.Errorf("error %v does not tell it", err)
		}
		s.machine.onContinue(nil)
		s.machine.set(true)
		goesOn(t)
	})
	t.Run("the agent is lost in the middle", func(t *testing.T) {
		reached := make(chan struct{})
		s.machine.onSave(func(ctx context.Context, _ *os.File) error {
			close(reached)
			<-ctx.Done()
			return ctx.Err()
		})
		saved := make(chan error)
		go func() { saved <- prepare() }()
		<-reached
		other := s.dial()
		if !other.Welcome().Saving {
			t.Error("welcome does not tell of the save")
		}
		s.client.Close()
		if err := <-saved; !errors.Is(err, shim.ErrDisconnected) {
			t.Errorf("error %v", err)
		}
		s.client = other
		goesOn(t)
		s.waitFor(func() bool { // nobody is told when it is over
			c := s.dial()
			defer c.Close()
			return !c.Welcome().Saving
		})
	})
	t.Run("the VMM dies in the middle", func(t *testing.T) {
		s.machine.onSave(func(ctx context.Context, _ *os.File) error {
			s.check(unix.Kill(pid, unix.SIGKILL))
			<-ctx.Done()
			return ctx.Err()
		})
		err := prepare()
		wantCode(t, err, shim.CodeInternal)
		if !strings.Contains(err.Error(), "SIGKILL") {
			t.Errorf("error %v does not say why", err)
		}
		s.noFile(image)
		if exit := s.exit(); exit.Reason != shim.ReasonCrashed || exit.Signal != "SIGKILL" || !strings.Contains(exit.LastWords, "fake VMM: well") {
			t.Errorf("exit %+v", exit)
		}
	})
}

// smallDisk is a folder with room for a save and little more, and fill uses
// that up.
func smallDisk(t *testing.T) (dir string, fill func()) {
	t.Helper()
	dir = t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64M"); err != nil {
		t.Skipf("can't mount a tmpfs: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	return dir, func() {
		f, err := os.Create(filepath.Join(dir, "ballast"))
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		for size := 1 << 20; size >= 4096; {
			if _, err := f.Write(make([]byte, size)); err != nil {
				size /= 2
			}
		}
	}
}

func TestDiskFullInTheMiddle(t *testing.T) {
	dir, fill := smallDisk(t)
	s := newScene(t, nil)
	s.launch()
	s.machine.onSave(func(context.Context, *os.File) error { fill(); return nil })
	image := filepath.Join(dir, "image")
	_, err := s.client.Save(s.ctx, s.saveArgs(image), nil, nil)
	wantCode(t, err, shim.CodeSpace)
	if !strings.Contains(err.Error(), unix.ENOSPC.Error()) {
		t.Errorf("error %v", err)
	}
	s.noFile(image)
	if !s.machine.isRunning() {
		t.Error("the guest stands still")
	}
}

func TestDiskFullAtCommit(t *testing.T) {
	dir, fill := smallDisk(t)
	s := newScene(t, nil)
	s.launch()
	image := filepath.Join(dir, "image")
	_, err := s.client.Save(s.ctx, s.saveArgs(image), nil, nil)
	s.check(err)
	fill()
	_, err = s.client.Commit(s.ctx, shim.Commit{})
	wantCode(t, err, shim.CodeSpace)
	s.noFile(image)
	if !s.machine.isRunning() {
		t.Error("the guest stands still")
	}
	s.check(os.Remove(filepath.Join(dir, "ballast")))
	_, err = s.client.Save(s.ctx, s.saveArgs(image), nil, nil)
	s.check(err)
	_, err = s.client.Commit(s.ctx, shim.Commit{KeepRunning: true})
	s.check(err)
	if !s.nothingNoted() {
		t.Error("what is an image now is noted as a save's remains")
	}
	img, err := memory.Open(image)
	s.check(err)
	defer img.Close()
	s.check(img.Verify(s.ctx, nil))
	b := make([]byte, 11)
	_, err = img.MemoryFile().ReadAt(b, 2<<20)
	s.check(err)
	if string(b) != "the guest's" {
		t.Errorf("memory has %q", b)
	}
}

func TestCommitDoesNotCome(t *testing.T) {
	s := newScene(t, func(o *Options) { o.CommitWithin = time.Millisecond })
	s.launch()
	image := filepath.Join(s.root, "image")
	_, err := s.client.Save(s.ctx, s.saveArgs(image), nil, nil)
	s.check(err)
	s.waitFor(s.machine.isRunning)
	s.waitFor(func() bool { _, err := os.Lstat(image); return err != nil })
	_, err = s.client.Commit(s.ctx, shim.Commit{})
	wantCode(t, err, shim.CodePrecondition)
}

// What was committed is carried out though nobody hears of it.
func TestAgentLostAfterCommit(t *testing.T) {
	s := newScene(t, nil)
	s.launch()
	image := filepath.Join(s.root, "image")
	conn, err := shim.DialSocket(s.ctx, s.options.RunDir, shim.SocketName)
	s.check(err)
	wire := shim.NewWire(conn)
	request := func(id uint64, op shim.Op, args string) {
		t.Helper()
		s.check(wire.Send(shim.Request{ID: id, Op: op, Args: []byte(args)}))
	}
	await := func(id uint64) {
		t.Helper()
		for {
			var m shim.Message
			_, err := wire.Receive(&m)
			s.check(err)
			if m.ID == id && m.Progress == nil {
				if m.Error != nil {
					t.Fatal(m.Error)
				}
				return
			}
		}
	}
	request(1, shim.OpHello, `{"major":1}`)
	await(1)
	request(2, shim.OpSave, fmt.Sprintf(`{"directory":%q,"manifest":{"vmm":{"name":"fake"}}}`, image))
	await(2)
	request(3, shim.OpCommit, `{}`)
	wire.Close()
	if exit := s.exit(); exit.Reason != shim.ReasonSaved || exit.ImageDirectory != image {
		t.Errorf("exit %+v", exit)
	}
	img, err := memory.Open(image)
	s.check(err)
	img.Close()
}

func TestExitReasons(t *testing.T) {
	for _, test := range []struct {
		name   string
		ending control.Ending
		status byte
		want   shim.Reason
	}{
		{"powered off", control.Ending{Shutdown: true}, '0', shim.ReasonShutdown},
		{"suspended to disk", control.Ending{Shutdown: true, Suspended: true}, '0', shim.ReasonSuspended},
		{"suspended to disk, and then a fault", control.Ending{Shutdown: true, Suspended: true}, '1', shim.ReasonCrashed},
		{"told to end while it suspended", control.Ending{Told: true, Suspended: true}, '0', shim.ReasonKilled},
		{"powered off, and then a fault", control.Ending{Shutdown: true}, '1', shim.ReasonCrashed},
		{"powered off, all closed, and then a fault", control.Ending{Shutdown: true, Closed: true}, '1', shim.ReasonShutdown},
		{"told to end, all closed, and then a fault", control.Ending{Told: true, Closed: true}, '1', shim.ReasonKilled},
		{"panicked", control.Ending{Panicked: true}, '0', shim.ReasonPanicked},
		{"panicked, told by the status", control.Ending{Panicked: true, Shutdown: true}, '1', shim.ReasonPanicked},
		{"told to quit", control.Ending{Told: true}, '0', shim.ReasonKilled},
		{"without a reason", control.Ending{}, '0', shim.ReasonCrashed},
		{"fault", control.Ending{}, '7', shim.ReasonCrashed},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newScene(t, nil)
			s.machine.ending = test.ending
			s.launch()
			s.check(s.machine.exit(test.status))
			exit := s.exit()
			if exit.Reason != test.want || exit.Code != int(test.status-'0') || exit.RunID != "run-1" {
				t.Errorf("exit %+v, want reason %s", exit, test.want)
			}
			s.noFile(s.ram)
		})
	}
}

// A stopped process that has connected must not stop the guest.
func TestAgentThatDoesNotRead(t *testing.T) {
	s := newScene(t, nil)
	s.launch()
	conn, err := shim.DialSocket(s.ctx, s.options.RunDir, shim.SocketName)
	s.check(err)
	defer conn.Close()
	wire := shim.NewWire(conn)
	s.check(wire.Send(shim.Request{ID: 1, Op: shim.OpHello, Args: []byte(`{"major":1}`)}))
	// Each answer is the whole plan, until nothing more goes into its socket and
	// the shim has closed it.
	for err == nil {
		err = wire.Send(shim.Request{ID: 2, Op: shim.OpHello, Args: []byte(`{"major":1}`)})
	}
	_, err = s.client.Save(s.ctx, s.saveArgs(filepath.Join(s.root, "image")), nil, nil)
	s.check(err)
}

func TestProtocolFaults(t *testing.T) {
	s := newScene(t, nil)
	connect := func(t *testing.T) *shim.Wire {
		t.Helper()
		conn, err := shim.DialSocket(s.ctx, s.options.RunDir, shim.SocketName)
		s.check(err)
		t.Cleanup(func() { conn.Close() })
		s.check(conn.SetDeadline(time.Now().Add(patience)))
		return shim.NewWire(conn)
	}
	for _, test := range []struct {
		name    string
		request shim.Request
		code    shim.Code
	}{
		{"before hello", shim.Request{ID: 1, Op: shim.OpKill}, shim.CodeVersion},
		{"other major version", shim.Request{ID: 1, Op: shim.OpHello, Args: []byte(`{"major":2}`)}, shim.CodeVersion},
		{"no arguments", shim.Request{ID: 1, Op: shim.OpHello}, shim.CodeInvalid},
		{"descriptors that did not come", shim.Request{ID: 1, Op: shim.OpHello, Args: []byte(`{"major":1}`), Files: 2}, shim.CodeInvalid},
	} {
		t.Run(test.name, func(t *testing.T) {
			wire := connect(t)
			s.check(wire.Send(test.request))
			var m shim.Message
			_, err := wire.Receive(&m)
			s.check(err)
			if m.ID != 1 || m.Error == nil || m.Error.Code != test.code {
				t.Errorf("reply %+v, want code %s", m, test.code)
			}
		})
	}
	t.Run("no protocol at all", func(t *testing.T) {
		wire := connect(t)
		_, err := wire.Conn().Write([]byte("GET / HTTP/1.1\r\n\r\n"))
		s.check(err)
		if _, err := wire.Receive(new(shim.Message)); err == nil {
			t.Error("it was answered")
		}
	})
	_, err := s.client.Launch(s.ctx, shim.Launch{}, nil, nil)
	wantCode(t, err, shim.CodeInvalid)
	p := s.plan("well")
	p.Files = append(p.Files, plan.File{Kind: plan.FileConsole})
	_, err = s.client.Launch(s.ctx, shim.Launch{Plan: p}, nil, nil)
	wantCode(t, err, shim.CodeInvalid)
	_, err = s.client.Console(s.ctx, 0)
	wantCode(t, err, shim.CodePrecondition)
	s.launch() // the agent's connection has not suffered
}

func TestStrangersAreRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to become another user")
	}
	s := newScene(t, nil)
	// All that file modes would do is out of the way: its user is what counts.
	dir, err := os.MkdirTemp("", "stranger")
	s.check(err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	s.check(os.Chmod(dir, 0o755))
	program, err := os.Executable()
	s.check(err)
	content, err := os.ReadFile(program)
	s.check(err)
	s.check(os.WriteFile(filepath.Join(dir, "stranger"), content, 0o755))
	socket := filepath.Join(dir, "shim.sock")
	s.check(os.Link(filepath.Join(s.options.RunDir, shim.SocketName), socket))
	s.check(os.Chmod(socket, 0o666))
	cmd := exec.Command(filepath.Join(dir, "stranger"), "stranger", socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("a stranger was let in: %v: %s", err, out)
	}
}

func TestTemplate(t *testing.T) {
	s := newScene(t, nil)
	template, vars := filepath.Join(s.root, "template"), filepath.Join(s.root, "vars")
	s.check(os.WriteFile(template, []byte("variables"), 0o644))
	p := s.plan("well")
	p.Files = append(p.Files, plan.File{Kind: plan.FilePath, Path: vars, Template: template, Write: true})
	_, err := s.client.Launch(s.ctx, shim.Launch{Plan: p}, nil, nil)
	s.check(err)
	b, err := os.ReadFile(vars)
	s.check(err)
	if st, err := os.Stat(vars); string(b) != "variables" || err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%q, %v, %v", b, st.Mode(), err)
	}
	// What is there is not replaced.
	s.check(os.WriteFile(vars, []byte("changed"), 0o600))
	o := &opener{plan: p}
	s.check(o.fromTemplate(&p.Files[3]))
	if b, err := os.ReadFile(vars); string(b) != "changed" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
}
