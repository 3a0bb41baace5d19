package vm

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/vmlet/vmlet/agent/host"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/shim"
	"google.golang.org/grpc/codes"
)

// firstUser is the id that the first VM of a vmtest.Host gets.
const firstUser = "user 1000"

// endAgent loses the agent, and with it what it knew of user ids.
func (w *world) endAgent(a *testAgent) {
	a.end()
	for _, what := range w.Holding() {
		if strings.HasPrefix(what, "user ") {
			w.Drop(what)
		}
	}
}

// wantUserReserved starts and kills a VM, which must not get the first user's id.
func (w *world) wantUserReserved(t *testing.T, a *testAgent, name string) {
	t.Helper()
	if !w.Has(firstUser) {
		t.Errorf("before %s: the user id is free, though a process has it", name)
	}
	a.mustCreate(t, name)
	a.mustStart(t, name)
	vm, _ := a.Get(t.Context(), name)
	if uid := vm.Snapshot().GetStatus().GetProcess().GetUid(); uid == 1000 {
		t.Errorf("%s has got user id %d", name, uid)
	}
	if _, err := a.Kill(t.Context(), name); err != nil {
		t.Error(err)
	}
}

// TestProcessThatCantBeEnded: as long as a process of a VM's user lives, which may be for
// ever, nobody else gets the id, whichever agent comes; the VM is neither started nor
// deleted, and all else goes on.
func TestProcessThatCantBeEnded(t *testing.T) {
	w, a := withRunning(t)
	if err := w.Hold("process of " + firstUser); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Kill(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	a.wantState(t, "web", lifecycle.Stopped)
	refused := func(a *testAgent) {
		t.Helper()
		_, err := a.Manager.Start(t.Context(), "web", StartOptions{}, nil)
		vmtest.WantCode(t, "start", err, codes.FailedPrecondition)
		if err == nil || !strings.Contains(err.Error(), "does not end") {
			t.Errorf("start: %v", err)
		}
		vmtest.WantCode(t, "delete", a.Delete(t.Context(), "web"), codes.FailedPrecondition)
	}
	refused(a)
	w.wantUserReserved(t, a, "second")
	w.endAgent(a)
	a = w.start()
	refused(a)
	w.wantUserReserved(t, a, "third")
	w.Drop("process of " + firstUser)
	a.mustStart(t, "web")
	if _, err := a.Kill(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	if err := a.Delete(t.Context(), "web"); err != nil {
		t.Error(err)
	}
	w.WantNothingHeld(t)
}

// TestProcessOfADeletedVM: a lease keeps its user id when the VM's record is gone, or can't
// be read.
func TestProcessOfADeletedVM(t *testing.T) {
	for name, record := range map[string]string{"gone": "", "unreadable": "{"} {
		t.Run(name, func(t *testing.T) {
			w, a := withRunning(t)
			if err := w.Hold("process of " + firstUser); err != nil {
				t.Fatal(err)
			}
			w.Proc("web").End(&shim.Exit{Reason: shim.ReasonCrashed})
			w.endAgent(a)
			path := filepath.Join(a.store.StateDir("web"), "vm.json")
			err := os.Remove(path)
			if record != "" {
				err = os.WriteFile(path, []byte(record), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			a = w.start()
			w.wantUserReserved(t, a, "second")
			w.Drop("process of " + firstUser)
			w.endAgent(a)
			a = w.start()
			if record != "" {
				if err := a.Delete(t.Context(), "web"); err != nil {
					t.Error(err)
				}
			}
			w.WantNothingHeld(t)
		})
	}
}

// TestFailedStartLeavesAProcess: a start that is taken back gives back no user id either
// that a process still has.
func TestFailedStartLeavesAProcess(t *testing.T) {
	w := newWorld(t)
	a := w.start()
	a.mustCreate(t, "web")
	if err := w.Hold("process of " + firstUser); err != nil {
		t.Fatal(err)
	}
	w.FailStep("connect", errors.New("broken"))
	if _, err := a.Manager.Start(t.Context(), "web", StartOptions{}, nil); err == nil {
		t.Fatal("it has started")
	}
	w.FailStep("connect", nil)
	w.wantUserReserved(t, a, "second")
	w.Drop("process of " + firstUser)
	if err := a.Delete(t.Context(), "web"); err != nil {
		t.Error(err)
	}
	w.WantNothingHeld(t)
}

// TestOutsideItsCgroup: processes that could not be moved into their cgroup are looked for
// everywhere, by the next agent, too.
func TestOutsideItsCgroup(t *testing.T) {
	for name, c := range map[string]struct{ outside, again bool }{
		"in it":              {false, false},
		"outside":            {true, false},
		"outside, new agent": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a := w.start()
			if c.outside {
				if err := w.Hold("no cgroup can be joined"); err != nil {
					t.Fatal(err)
				}
			}
			a.mustCreate(t, "web")
			a.mustStart(t, "web")
			if c.again {
				a.end()
				a = w.start()
			}
			if _, err := a.Kill(t.Context(), "web"); err != nil {
				t.Fatal(err)
			}
			want := "/vmlet/web"
			if c.outside {
				want = ""
			}
			if len(w.Searched) == 0 || slices.ContainsFunc(w.Searched, func(path string) bool { return path != want }) {
				t.Errorf("searched in %q, want in %q alone", w.Searched, want)
			}
		})
	}
}

// TestNamedTapIsRestored: a tap of the administrator's is noted before a VMM gets it, and
// put back by whichever agent is there at the end.
func TestNamedTapIsRestored(t *testing.T) {
	w := newWorld(t)
	a := w.start()
	s := vmtest.Spec("web")
	s.Networks[0].Backend = &specv1.NetworkInterface_Tap{Tap: &specv1.TapNetwork{Device: "tap7"}}
	if _, err := a.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	a.mustStart(t, "web")
	a.end()
	a = w.start()
	if _, err := a.Kill(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	steps := w.Taken()
	noted, opened, restored := slices.Index(steps, "note tap7"), slices.Index(steps, "tap"), slices.Index(steps, "restore tap7")
	if noted < 0 || opened < noted || restored < opened {
		t.Errorf("steps %q: want the tap noted, opened and restored", steps)
	}
	w.WantNothingHeld(t)
}

// TestNextAgentEndsWhatForks: a VMM that has outlived its shim, and its agent, and forks as
// fast as it is killed, is ended by the next agent, which gets ready, and its user id is free.
func TestNextAgentEndsWhatForks(t *testing.T) {
	perl, err := exec.LookPath("perl")
	if os.Getuid() != 0 || err != nil {
		t.Skip("needs root and perl")
	}
	w := newWorld(t)
	if err := os.MkdirAll(w.RunDir, 0o711); err != nil {
		t.Fatal(err)
	}
	real, err := host.New(host.Options{
		FirstUser: 2_100_000_000, Users: 65536, RAMDir: filepath.Join(w.RunDir, "ram"), RAMSize: "90%", RAMHuge: "never",
		Instance: "outlive", Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer real.Close()
	uid := uint32(2_000_000_004 + 2*os.Getpid()) // who nobody else on the machine is
	l := &place.Lease{RunID: "run", UID: uid, Cgroup: real.PlanCgroup("web", 0)}

	a := w.start()
	a.mustCreate(t, "web")
	a.keep(t, "web", lifecycle.Running, nil)
	if err := errors.Join(a.store.MakeRunDir("web"), l.Write(a.store.RunDir("web")), real.MakeCgroup(l.Cgroup)); err != nil {
		t.Fatal(err)
	}
	a.end()
	vmm := exec.CommandContext(t.Context(), "nice", "-n", "19", "prlimit", "--nproc=200", perl, "-e", "<STDIN>; fork while -d $ARGV[0]", fmt.Sprintf("/proc/%d", os.Getpid()))
	stdin, err := vmm.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := real.StartInCgroup(l.Cgroup, func(attr *syscall.SysProcAttr) (int, error) {
		attr.Credential = &syscall.Credential{Uid: uid, Gid: uid}
		vmm.SysProcAttr = attr
		if err := vmm.Start(); err != nil {
			return 0, err
		}
		return vmm.Process.Pid, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !in {
		t.Skip("no cgroups here")
	}
	stdin.Close()
	for processesOf(t, uid) < 100 && t.Context().Err() == nil {
	}

	w.OwnHost = real
	a = w.start()
	if a.Manager.own.Leased("web") {
		t.Fatal("not all was taken back")
	}
	_ = vmm.Wait() // it was killed
	if err := real.ClaimUser(uid, "another"); err != nil {
		t.Error(err)
	}
}

func processesOf(t *testing.T, uid uint32) (n int) {
	t.Helper()
	all, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if info, err := e.Info(); err == nil && info.Sys().(*syscall.Stat_t).Uid == uid {
			n++
		}
	}
	return n
}

// TestLeaseHasMemorySize: what is waited for depends on it, in the next agent, too.
func TestLeaseHasMemorySize(t *testing.T) {
	_, a := withRunning(t)
	l, err := place.ReadLease(a.store.RunDir("web"))
	if err != nil || l.MemorySize == 0 {
		t.Errorf("the lease has %d bytes of memory, %v", l.MemorySize, err)
	}
}
