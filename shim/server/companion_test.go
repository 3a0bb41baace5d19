package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
)

// What a companion has beside its standard streams.
const (
	companionReady = plan.FirstFile + iota
	companionPair
)

// beCompanion is a process beside the VMM, which leaves its pid in a folder, and what becomes of it.
func beCompanion(how, dir string) {
	note := func(name, content string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			os.Exit(9)
		}
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, unix.SIGTERM)
	note("pid", strconv.Itoa(os.Getpid()))
	fmt.Fprintln(os.Stderr, "companion:", how)
	switch how {
	case "dead":
		os.Exit(7)
	case "mute":
		os.NewFile(companionReady, "ready").Close()
	case "socket":
		time.Sleep(50 * time.Millisecond)
		if _, err := net.Listen("unix", filepath.Join(dir, "run", "companion.sock")); err != nil {
			os.Exit(8)
		}
	case "says":
		time.Sleep(50 * time.Millisecond)
		note("said", "")
		if _, err := os.NewFile(companionReady, "ready").WriteString("!"); err != nil {
			os.Exit(8)
		}
	}
	<-stop
	note("ended", "")
	os.Exit(0)
}

// planBeside is a plan with a companion, whose pair of sockets ends in the VMM.
func (s *scene) planBeside(how string) *plan.Plan {
	p := s.plan("well")
	c := plan.Companion{Name: "emulator", Field: "devices.tpm", Program: p.Program, Args: []string{"companion", how, s.root}}
	c.Files = []plan.File{{Kind: plan.FileReady}, {Kind: plan.FilePair, Path: "tpm"}}
	if how == "socket" {
		c.Files[0], c.Socket = plan.File{Kind: plan.FileListen, Path: "unused.sock"}, "companion.sock"
	}
	p.Files = append(p.Files, plan.File{Kind: plan.FilePair, Path: "tpm"})
	p.Companions = []plan.Companion{c}
	return p
}

func (s *scene) launchBeside(p *plan.Plan) error {
	_, err := s.client.Launch(s.ctx, shim.Launch{Plan: p}, nil, nil)
	return err
}

func (s *scene) companionPID() int {
	s.t.Helper()
	b, err := os.ReadFile(filepath.Join(s.root, "pid"))
	s.check(err)
	pid, err := strconv.Atoi(string(b))
	s.check(err)
	return pid
}

// TestCompanion is ready before the VMM starts, and is asked to end after the VMM has ended.
func TestCompanion(t *testing.T) {
	for _, how := range []string{"says", "socket"} {
		t.Run(how, func(t *testing.T) {
			s := newScene(t, nil)
			ready := errors.New("the VMM was not reached")
			s.driver.onConnect(func(ctx context.Context) error {
				_, ready = os.Stat(filepath.Join(s.root, map[string]string{"says": "said", "socket": "run/companion.sock"}[how]))
				return nil
			})
			atEnd := make(chan error, 1)
			s.machine.ended = func() { atEnd <- unix.Kill(s.companionPID(), 0) }
			s.check(s.launchBeside(s.planBeside(how)))
			if ready != nil {
				t.Errorf("it was not ready when the VMM was: %v", ready)
			}
			_, err := s.client.Stop(s.ctx, patience)
			s.check(err)
			if err := <-atEnd; err != nil {
				t.Errorf("it had ended when the VMM did: %v", err)
			}
			s.exit()
			if _, err := os.Stat(filepath.Join(s.root, "ended")); err != nil {
				t.Errorf("it was not asked to end: %v", err)
			}
			s.noFile(filepath.Join(s.options.RunDir, "companion.sock"))
		})
	}
}

// TestCompanionFails: what is wrong with it is the launch's error, and nothing is left.
func TestCompanionFails(t *testing.T) {
	for name, c := range map[string]struct {
		how    string
		change func(*plan.Plan)
		code   shim.Code
		says   string
	}{
		"it ends":              {"dead", nil, shim.CodeInternal, "exit status 7, saying: companion: dead"},
		"it doesn't say so":    {"mute", nil, shim.CodeInternal, "has not said that it is ready"},
		"it is not there":      {"says", func(p *plan.Plan) { p.Companions[0].Program = "/none" }, shim.CodeInvalid, "start /none"},
		"no absolute path":     {"says", func(p *plan.Plan) { p.Companions[0].Program = "swtpm" }, shim.CodeInvalid, "not an absolute path"},
		"a path for a socket":  {"socket", func(p *plan.Plan) { p.Companions[0].Socket = "../sock" }, shim.CodeInvalid, "run folder"},
		"it is there twice":    {"says", func(p *plan.Plan) { p.Companions = append(p.Companions, p.Companions[0]) }, shim.CodeInvalid, "listed twice"},
		"a console":            {"says", func(p *plan.Plan) { p.Companions[0].Files[0].Kind = plan.FileConsole }, shim.CodeInvalid, "no file of kind"},
		"one end of a pair":    {"says", func(p *plan.Plan) { p.Files = p.Files[:len(p.Files)-1] }, shim.CodeInvalid, "one end only"},
		"three ends of a pair": {"says", func(p *plan.Plan) { p.Files = append(p.Files, p.Files[len(p.Files)-1]) }, shim.CodeInvalid, "more than two ends"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, nil)
			p := s.planBeside(c.how)
			if c.change != nil {
				c.change(p)
			}
			err := s.launchBeside(p)
			wantCode(t, err, c.code)
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %q, want %q in it", err, c.says)
			}
			s.noFile(s.ram)
			s.noFile(filepath.Join(s.options.RunDir, monitorSocket))
			if b, err := os.ReadFile(filepath.Join(s.root, "pid")); err == nil {
				pid, _ := strconv.Atoi(string(b))
				if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
					t.Errorf("process %d is left: %v", pid, err)
				}
			}
			p = s.plan("well")
			s.check(s.launchBeside(p)) // as if nothing had been
		})
	}
}

// TestCompanionDies: its VM ends, with the reason.
func TestCompanionDies(t *testing.T) {
	s := newScene(t, nil)
	s.check(s.launchBeside(s.planBeside("says")))
	s.check(unix.Kill(s.companionPID(), unix.SIGKILL))
	exit := s.exit()
	if exit.Reason != shim.ReasonCrashed {
		t.Errorf("reason %s, want %s", exit.Reason, shim.ReasonCrashed)
	}
	if want := "devices.tpm: emulator: "; !strings.HasPrefix(exit.LastWords, want) {
		t.Errorf("last words %q, want %q first", exit.LastWords, want)
	}
}

// TestPairs: each of two processes has one end.
func TestPairs(t *testing.T) {
	p := new(pairs)
	var ends [2]*os.File
	for i := range ends {
		var err error
		if ends[i], err = p.take("tpm"); err != nil {
			t.Fatal(err)
		}
		defer ends[i].Close()
		if whole := p.complete() == nil; whole != (i == 1) {
			t.Errorf("with %d ends taken it is complete: %v", i+1, whole)
		}
	}
	b := make([]byte, 1)
	if _, err := ends[0].WriteString("x"); err != nil {
		t.Fatal(err)
	}
	if _, err := ends[1].Read(b); err != nil || b[0] != 'x' {
		t.Errorf("read %q, %v", b, err)
	}
}
