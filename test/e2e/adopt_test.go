package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protojson"

	vmletv1 "github.com/vmlet/vmlet/proto/vmlet/v1"
	"github.com/vmlet/vmlet/test/guest"
	"github.com/vmlet/vmlet/vmm/qemu/qmp"
)

// TestAgentKilled kills the agent under its VMs: those that run are adopted and
// notice nothing, of the others it is known how they have ended meanwhile.
func TestAgentKilled(t *testing.T) {
	for _, q := range qemusOrSkip(t) {
		t.Run("qemu "+q.name, func(t *testing.T) {
			n := newNode(t, nodeOptions{qemu: q})
			boot := func(name string) *vm {
				v := n.boot(pvh(t, name, "emulation", guest.PVHOptions{}))
				v.count()
				return v
			}
			goesOn, stands, shutDown, vmmDies, shimDies, isSaved, isLazy := boot("goes-on"), boot("stands"), boot("shut-down"),
				boot("vmm-dies"), boot("shim-dies"), boot("is-saved"), boot("is-lazy")
			stands.pause()
			isSaved.save(filepath.Join(t.TempDir(), "image"), false)
			lazyImage := filepath.Join(t.TempDir(), "image")
			isLazy.save(lazyImage, false)
			n.must(n.restore(&vmletv1.RestoreVMRequest{Directory: lazyImage, Lazy: n.lazy()}))
			before := make(map[string]*vmletv1.ProcessStatus)
			for _, v := range []*vm{goesOn, stands, shutDown, vmmDies, shimDies, isLazy} {
				before[v.name] = v.get().GetStatus().GetProcess()
			}

			n.signal(unix.SIGKILL)
			var ended []process
			for _, name := range []string{"shut-down", "vmm-dies", "shim-dies"} {
				ended = append(ended, handle(t, before[name].GetShimPid()), handle(t, before[name].GetVmmPid()))
			}
			n.powerDown("shut-down")
			handle(t, before["vmm-dies"].GetVmmPid()).signal(unix.SIGKILL)
			handle(t, before["shim-dies"].GetShimPid()).signal(unix.SIGKILL)
			for _, p := range ended {
				p.gone()
			}
			handle(t, before["goes-on"].GetVmmPid()) // still there
			n.start()

			for _, v := range []*vm{goesOn, isLazy} {
				v.follow()
				v.is(running)
				v.countsOn()
			}
			stands.is(paused)
			for _, v := range []*vm{goesOn, stands, isLazy} {
				if after := v.get().GetStatus().GetProcess(); after.String() != before[v.name].String() {
					t.Errorf("%s had %v and has %v", v.name, before[v.name], after)
				}
			}
			shutDown.is(stopped)
			says(t, vmmDies.is(crashed), "SIGKILL")
			says(t, shimDies.is(crashed), "shim")
			isSaved.is(saved)

			n.reset(goesOn)
			stands.follow()
			stands.resume()
			stands.countsOn()
			for _, v := range []*vm{isSaved, shutDown, vmmDies, shimDies} {
				v.follow()
				v.must(v.start(false))
			}
			isSaved.countsOn()
			again := filepath.Join(t.TempDir(), "image")
			goesOn.save(again, false)
			goesOn.must(goesOn.start(false))
		})
	}
}

func says(t *testing.T, s *vmletv1.VirtualMachineStatus, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(s.GetMessage(), w) {
			t.Errorf("the message is %q, want it to say %q", s.GetMessage(), w)
		}
	}
}

// powerDown presses a guest's power button on the monitor of an agent that is
// not there.
func (n *node) powerDown(name string) {
	n.t.Helper()
	ctx, cancel := n.patient()
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", n.path("run", "vms", name, "qmp.sock"))
	n.must(err)
	client, err := qmp.New(ctx, conn)
	n.must(err)
	defer client.Close()
	n.must(client.Execute(ctx, "system_powerdown", nil, nil))
}

// TestReboot takes away what a reboot does: every process, the run folder, and
// the boot id that the records have.
func TestReboot(t *testing.T) {
	n := newNode(t, nodeOptions{})
	boot := func(name string) *vm {
		v := n.boot(pvh(t, name, "emulation", guest.PVHOptions{}))
		v.count()
		return v
	}
	ran, isSaved := boot("ran"), boot("is-saved")
	isSaved.save(filepath.Join(t.TempDir(), "image"), false)
	process := ran.get().GetStatus().GetProcess()
	vmm := handle(t, process.GetVmmPid())
	n.signal(unix.SIGKILL)
	shim := handle(t, process.GetShimPid())
	shim.signal(unix.SIGKILL)
	shim.gone()
	vmm.gone()
	n.must(unix.Unmount(n.path("run", "ram"), 0))
	n.must(os.RemoveAll(n.path("run")))
	for _, v := range []*vm{ran, isSaved} {
		n.editRecord(v.name, func(vm *vmletv1.VirtualMachine) { vm.Status.BootId = "an earlier boot" })
	}
	n.start()
	says(t, ran.is(stopped), "rebooted")
	isSaved.is(saved)
	isSaved.follow()
	isSaved.must(isSaved.start(false))
	isSaved.countsOn()
	ran.follow()
	ran.must(ran.start(false))
	ran.count()
}

// editRecord changes the record of a VM while no agent is there.
func (n *node) editRecord(name string, edit func(*vmletv1.VirtualMachine)) {
	n.t.Helper()
	path := n.path("state", "vms", name, "vm.json")
	content, err := os.ReadFile(path)
	n.must(err)
	vm := new(vmletv1.VirtualMachine)
	n.must(protojson.Unmarshal(content, vm))
	edit(vm)
	content, err = protojson.Marshal(vm)
	n.must(err)
	n.must(os.WriteFile(path, content, 0o600))
}

// TestAgentStops ends the agent as systemd does: VMs go on.
func TestAgentStops(t *testing.T) {
	n := newNode(t, nodeOptions{})
	v := n.boot(pvh(t, "goes-on", "emulation", guest.PVHOptions{}))
	v.count()
	n.signal(unix.SIGTERM)
	if code := n.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the agent ended with %v", n.cmd.ProcessState)
	}
	n.start()
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
		cmd := n.command("agent", "--state-dir", c.state, "--run-dir", c.run, "--config", n.path("config.yaml"))
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
	if _, err := n.api.ListVMs(n.ctx, &vmletv1.ListVMsRequest{}); err != nil {
		t.Errorf("the first agent after that: %v", err)
	}
}

// TestCrash kills a VM's shim, and its VMM: crashes that name their cause.
func TestCrash(t *testing.T) {
	n := newNode(t, nodeOptions{})
	v := n.boot(pvh(t, "crash", "emulation", guest.PVHOptions{}))
	for _, c := range []struct {
		victim func(*vmletv1.ProcessStatus) int64
		word   string
	}{{(*vmletv1.ProcessStatus).GetShimPid, "shim"}, {(*vmletv1.ProcessStatus).GetVmmPid, "SIGKILL"}} {
		v.count()
		from := v.now()
		p := v.get().GetStatus().GetProcess()
		shim, vmm := handle(t, p.GetShimPid()), handle(t, p.GetVmmPid())
		handle(t, c.victim(p)).signal(unix.SIGKILL)
		vmm.gone()
		shim.gone()
		says(t, v.becomes(from, crashed), c.word)
		v.must(v.start(false))
		v.expect(guest.UpLine)
	}
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
	stream, err := n.api.ReadLogs(follower, &vmletv1.ReadLogsRequest{Name: v.name, Follow: true})
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
