package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/test/guest"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// agentKilled kills the agent under its VMs: those that run are adopted and
// notice nothing, of the others it is known how they have ended meanwhile.
func (s *suite) agentKilled() {
	// Each waits until it is needed: they have few processors.
	boot := func(name string) *vm {
		v := s.boots(name, guest.PVHOptions{})
		v.pause()
		return v
	}
	goesOn, stands, shutDown, vmmDies, shimDies, isSaved, isLazy := boot("goes-on"), boot("stands"), boot("shut-down"),
		boot("vmm-dies"), boot("shim-dies"), boot("is-saved"), boot("is-lazy")
	isCreated := s.create(s.spec("is-created", guest.PVHOptions{}))
	isSaved.save(s.image(), false)
	lazyImage := s.image()
	isLazy.save(lazyImage, false)
	s.must(s.restore(&nodev1.RestoreVMRequest{Directory: lazyImage, Lazy: s.lazy()}))
	goesOn.resume()
	shutDown.resume()
	before := make(map[string]*nodev1.ProcessStatus)
	for _, v := range []*vm{goesOn, stands, shutDown, vmmDies, shimDies, isLazy} {
		before[v.name] = v.get().GetStatus().GetProcess()
	}

	s.signal(unix.SIGKILL)
	s.endMeanwhile(before)
	s.start()

	for _, v := range []*vm{goesOn, isLazy} {
		v.follow()
		v.is(running)
		v.countsOn()
	}
	stands.is(paused)
	for _, v := range []*vm{goesOn, stands, isLazy} {
		if after := v.get().GetStatus().GetProcess(); after.String() != before[v.name].String() {
			s.t.Errorf("%s had %v and has %v", v.name, before[v.name], after)
		}
	}
	shutDown.is(stopped)
	says(s.t, vmmDies.is(crashed), "SIGKILL")
	says(s.t, shimDies.is(crashed), "shim")
	isSaved.is(saved)
	isCreated.is(created)

	isLazy.kill()
	s.reset(goesOn)
	goesOn.save(s.image(), false)
	stands.follow()
	stands.resume()
	stands.countsOn()
	for _, v := range []*vm{stands, isSaved, shutDown, vmmDies, shimDies, isCreated, goesOn} {
		if v != stands {
			v.follow()
			v.must(v.start(false))
			v.count()
		}
		v.kill()
	}
}

// endMeanwhile ends VMs, each in its own way, while no agent is there.
func (s *suite) endMeanwhile(before map[string]*nodev1.ProcessStatus) {
	s.t.Helper()
	var ended []process
	for _, name := range []string{"shut-down", "vmm-dies", "shim-dies"} {
		ended = append(ended, handle(s.t, before[name].GetShimPid()), handle(s.t, before[name].GetVmmPid()))
	}
	handle(s.t, before["shut-down"].GetShimPid()).signal(unix.SIGTERM) // which presses the power button
	handle(s.t, before["vmm-dies"].GetVmmPid()).signal(unix.SIGKILL)
	handle(s.t, before["shim-dies"].GetShimPid()).signal(unix.SIGKILL)
	for _, p := range ended {
		p.gone()
	}
	handle(s.t, before["goes-on"].GetVmmPid()) // still there
}

func says(t *testing.T, s *nodev1.VirtualMachineStatus, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(s.GetMessage(), w) {
			t.Errorf("the message is %q, want it to say %q", s.GetMessage(), w)
		}
	}
}

// rebooted takes away what a reboot does: every process, the run folder, and the
// boot id that the records have.
func (s *suite) rebooted() {
	isSaved := s.boots("is-saved", guest.PVHOptions{})
	isSaved.save(s.image(), false)
	ran := s.boots("ran", guest.PVHOptions{})
	process := ran.get().GetStatus().GetProcess()
	vmm := handle(s.t, process.GetVmmPid())
	s.signal(unix.SIGKILL)
	shim := handle(s.t, process.GetShimPid())
	shim.signal(unix.SIGKILL)
	shim.gone()
	vmm.gone()
	s.must(unix.Unmount(s.path("run", "ram"), 0))
	s.must(os.RemoveAll(s.path("run")))
	for _, v := range []*vm{ran, isSaved} {
		s.editRecord(v.name, func(vm *nodev1.VirtualMachine) { vm.Status.BootId = "an earlier boot" })
	}
	s.start()
	says(s.t, ran.is(stopped), "rebooted")
	isSaved.is(saved)
	isSaved.follow()
	isSaved.must(isSaved.start(false))
	isSaved.countsOn()
	isSaved.kill()
	ran.follow()
	ran.must(ran.start(false))
	ran.count()
}

// editRecord changes the record of a VM while no agent is there.
func (n *node) editRecord(name string, edit func(*nodev1.VirtualMachine)) {
	n.t.Helper()
	path := n.path("state", "vms", name, "vm.json")
	content, err := os.ReadFile(path)
	n.must(err)
	vm := new(nodev1.VirtualMachine)
	n.must(protojson.Unmarshal(content, vm))
	edit(vm)
	content, err = protojson.Marshal(vm)
	n.must(err)
	n.must(os.WriteFile(path, content, 0o600))
}

// agentStopped ends the agent as systemd does: VMs go on.
func (s *suite) agentStopped() {
	v := s.boots("goes-on", guest.PVHOptions{})
	s.signal(unix.SIGTERM)
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		s.t.Errorf("the agent ended with %v", s.cmd.ProcessState)
	}
	s.start()
	v.follow()
	v.is(running)
	v.countsOn()
}

func TestSecondAgent(t *testing.T) {
	n := newNode(t, nodeOptions{})
	other := t.TempDir()
	for _, c := range []struct{ shared, state, run string }{
		{n.path("state"), n.path("state"), filepath.Join(other, "run")},
		{n.path("run"), filepath.Join(other, "state"), n.path("run")},
	} {
		cmd := n.agent("--state-dir", c.state, "--run-dir", c.run, "--config", n.path("config.yaml"))
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != 1 {
			t.Errorf("a second agent on %s ended with %v", c.shared, err)
		}
		for _, w := range []string{c.shared + ": ", fmt.Sprintf("process %d", n.cmd.Process.Pid)} {
			if !strings.Contains(string(out), w) {
				t.Errorf("a second agent on %s says %q, want it to say %q", c.shared, out, w)
			}
		}
	}
	if _, err := n.api.ListVMs(n.ctx, &nodev1.ListVMsRequest{}); err != nil {
		t.Errorf("the first agent after that: %v", err)
	}
}

// crashes kills a VM's shim, and its VMM, while the guest runs and while it stands
// still: crashes that name their cause.
func (s *suite) crashes() {
	v := s.boots("crash", guest.PVHOptions{})
	for _, c := range []struct {
		victim func(*nodev1.ProcessStatus) int64
		word   string
		paused bool
	}{
		{(*nodev1.ProcessStatus).GetShimPid, "shim", false},
		{(*nodev1.ProcessStatus).GetVmmPid, "SIGKILL", false},
		{(*nodev1.ProcessStatus).GetShimPid, "shim", true},
		{(*nodev1.ProcessStatus).GetVmmPid, "SIGKILL", true},
	} {
		if c.paused {
			v.pause()
		}
		from := v.now()
		p := v.get().GetStatus().GetProcess()
		shim, vmm := handle(s.t, p.GetShimPid()), handle(s.t, p.GetVmmPid())
		handle(s.t, c.victim(p)).signal(unix.SIGKILL)
		vmm.gone()
		shim.gone()
		says(s.t, v.becomes(from, crashed), c.word)
		v.must(v.start(false))
		v.expect(guest.UpLine)
		v.count()
	}
}

// hangs stops a VMM's process: what its agent knows by itself it says all the
// same, nobody waits longer than he wants to, and the VM can be ended.
func (s *suite) hangs() {
	v := s.boots("hangs", guest.PVHOptions{})
	vmm := func() process { return handle(s.t, v.get().GetStatus().GetProcess().GetVmmPid()) }
	vmm().freeze()
	v.is(running)
	impatient, cancel := context.WithTimeout(s.ctx, time.Second)
	defer cancel()
	_, err := s.api.PauseVM(impatient, &nodev1.PauseVMRequest{Name: v.name})
	refused(s.t, err, codes.DeadlineExceeded)
	vmm().signal(unix.SIGCONT)
	v.pause() // what was asked for before may come only now
	v.resume()
	v.countsOn()

	v.killedStill(vmm())
	stopped := vmm()
	stopped.freeze()
	from := v.now()
	r, err := s.api.StopVM(s.ctx, &nodev1.StopVMRequest{Name: v.name, GracePeriodMs: proto.Int64(1000)})
	s.must(err)
	if !r.GetKilled() {
		s.t.Error("killed is not set")
	}
	says(s.t, v.becomes(from, nodev1.State_STATE_STOPPED), "grace period")
	stopped.gone()
}

// TestFlood has a guest print without pause: what is kept of it is bounded, and
// who follows gets all of it.
func TestFlood(t *testing.T) {
	const kept = 3 << 20 // three files of 1 MiB
	t.Parallel()
	if testing.Short() {
		t.Skip("a guest takes half a minute to print enough")
	}
	n := newNode(t, nodeOptions{})
	v := n.boot(pvh(t, "flood", "emulation", guest.PVHOptions{Flood: true}))
	follower, cancel := context.WithCancel(n.ctx)
	defer cancel()
	stream, err := n.api.ReadLogs(follower, &nodev1.ReadLogsRequest{Name: v.name, Follow: true})
	n.must(err)
	for seen := 0; seen < kept+kept/2; {
		m, err := stream.Recv()
		n.must(err)
		seen += len(m.GetData())
	}
	v.countsOn()
	var size int64
	logs, err := filepath.Glob(n.path("state", "vms", v.name, "console.log*"))
	n.must(err)
	for _, log := range logs {
		st, err := os.Stat(log)
		if errors.Is(err, os.ErrNotExist) {
			continue // rotated just now
		}
		n.must(err)
		size += st.Size()
	}
	if len(logs) == 0 || size > kept {
		t.Errorf("%d bytes are kept in %v, want %d at most", size, logs, kept)
	}
	v.unfollow()
}
