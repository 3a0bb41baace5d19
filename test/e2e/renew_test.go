package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/test/guest"
)

// renewalSteps are a renewal's in the shim, in their order.
func renewalSteps() []string {
	return []string{
		"shim.renew.begun", "shim.renew.opened", "shim.renew.started", "shim.renew.connected", "shim.renew.recorded",
		"shim.renew.sent", "shim.renew.fenced", "shim.renew.named", "shim.renew.left", "shim.renew.over",
	}
}

// vmms are the VMMs of a node with one VM, the first first.
func (n *node) vmms() []int {
	n.t.Helper()
	started := make(map[int]uint64)
	var pids []int
	for _, pid := range n.victims(theVMM) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		start, err := strconv.ParseUint(fields[19], 10, 64) // field 22, proc(5)
		n.must(err)
		if fields[0] != "Z" && fields[0] != "X" {
			started[pid] = start
			pids = append(pids, pid)
		}
	}
	slices.SortFunc(pids, func(a, b int) int {
		if started[a] != started[b] {
			return int(started[a]) - int(started[b])
		}
		return a - b
	})
	return pids
}

// TestRenewUpgrades: a guest goes on in the QEMU that was installed while it ran, and can be saved there.
func TestRenewUpgrades(t *testing.T) {
	t.Parallel()
	all := ofQEMU(t, []string{"emulation"})
	if len(all) < 2 {
		t.Skip("there is one QEMU: run test/setup test")
	}
	g := all[0]
	installed := filepath.Join(t.TempDir(), "qemu-system-x86_64")
	install := func(binary string) {
		script := fmt.Sprintf("#!/bin/sh\nexec %s \"$@\"\n", binary)
		if err := os.WriteFile(installed+".new", []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(installed+".new", installed); err != nil {
			t.Fatal(err)
		}
	}
	for dir := filepath.Dir(installed); dir != "/"; dir = filepath.Dir(dir) { // VMMs' users get through
		if info, err := os.Stat(dir); err == nil {
			_ = os.Chmod(dir, info.Mode()|0o111)
		}
	}
	install(all[0].options.qemu.binary)
	g.options.qemu.binary = installed
	s := &suite{newNode(t, g.options), g}
	spec := s.spec("renewed", guest.PVHOptions{Memory: s.pattern(4)})
	spec.Cpu = &specv1.CPU{Model: "qemu64"} // what max has is another in each QEMU
	v := s.boot(spec)
	v.count()
	before := v.is(running).GetVmm().GetVersion()
	install(all[1].options.qemu.binary)
	s.renewUntil(v, func(version string) bool { return version != before })
	v.countsOn()
	v.typeIn(string(guest.KeyVerify))
	v.expect("verified .*")
	v.save(s.image(), false)
	v.must(v.start(false))
	v.countsOn()
	if now := v.is(running).GetVmm().GetVersion(); now == before {
		t.Errorf("the VM has QEMU %s, as before", now)
	}
	v.kill()
}

// renewUntil renews until the agent has noticed that another program is installed.
func (s *suite) renewUntil(v *vm, wanted func(version string) bool) {
	s.t.Helper()
	for range 50 {
		r, err := s.api.RenewVM(s.ctx, &nodev1.RenewVMRequest{Name: v.name})
		s.must(err)
		result := r.GetResult()
		s.t.Logf("renewed: %v", result)
		if result.GetWarning() != "" {
			s.t.Errorf("it warns: %s", result.GetWarning())
		}
		if wanted(result.GetVersion()) {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	s.t.Fatal("the VMM is of the program that was installed before")
}

// TestRenewKills kills the VMM that has the guest, or the one that is to have it, at each step of a renewal. The guest goes on
// in the other one if that can have it: before the guest has been sent in the first, afterwards in the second. It never runs
// in both, and boots no second time.
func TestRenewKills(t *testing.T) {
	if testing.Short() {
		t.Skip("not in short mode")
	}
	t.Parallel()
	g := emulated(t)
	l := newLane(t, g, buildFaulty(t))
	sent := slices.Index(renewalSteps(), "shim.renew.sent")
	type kill struct {
		step        string
		second      bool
		lives, both bool // the guest goes on; either may be
	}
	var all []kill
	for i, step := range renewalSteps() {
		all = append(all, kill{step: step, lives: i >= sent})
		if i >= slices.Index(renewalSteps(), "shim.renew.started") {
			all = append(all, kill{step: step, second: true, lives: i <= sent})
		}
	}
	all = append(all, kill{step: "qemu.send.stopped"}, kill{step: "qemu.send.stopped", second: true, lives: true})
	for _, k := range all {
		if k.step == "shim.renew.fenced" && k.second {
			k.lives, k.both = false, true // it is unknown whether it has begun, unless it says so
		}
		t.Run(fmt.Sprintf("%s, second %t", k.step, k.second), func(t *testing.T) {
			l.in(t)
			w := l.walked(nil)
			w.running()
			l.faults.forget()
			hit := make(chan error, 1)
			l.faults.at(k.step, func(int) {
				pids := l.vmms()
				index := 0
				if k.second {
					index = 1
				}
				if len(pids) == 1 && index == 1 && slices.Index(renewalSteps(), k.step) > sent {
					index = 0 // the first has left
				}
				if index >= len(pids) {
					hit <- fmt.Errorf("the VMMs are %v", pids)
					return
				}
				if !k.second && len(pids) == 1 && slices.Index(renewalSteps(), k.step) > sent {
					hit <- nil // it is gone already
					return
				}
				hit <- slay(pids[index])
			})
			err := w.doRenew()
			select {
			case killed := <-hit:
				w.must(killed)
			default:
				t.Fatalf("the step is not come to: %v; there were %v", err, l.faults.steps())
			}
			var ended bool
			w.eventually(func() error {
				state, s, err := w.state()
				ended = state == crashed
				switch {
				case err != nil:
					return err
				case ended && len(l.vmms()) == 0, state == running && len(l.vmms()) == 1:
					return nil
				}
				return fmt.Errorf("it is %v (%s), with the VMMs %v", state, s.GetMessage(), l.vmms())
			})
			if ended == k.lives && !k.both {
				t.Errorf("the VM has ended: %t, and was to: %t; the renewal: %v", ended, !k.lives, err)
			}
			if !ended {
				w.healthy()
				if boots := w.ups(); boots != w.boots {
					t.Errorf("the guest has booted %d times, %d before", boots, w.boots)
				}
				record, err := shim.ReadVMMRecord(w.path("run", "vms", w.v.name))
				if k.step != "shim.renew.begun" && k.step != "shim.renew.opened" && (err != nil || record.Next != nil || record.VMM.PID != l.vmms()[0]) {
					t.Errorf("the record has %+v, %v; the VMM is %v", record, err, l.vmms())
				}
				w.must(w.doRenew())
				w.healthy()
			}
			w.remove()
		})
	}
}
