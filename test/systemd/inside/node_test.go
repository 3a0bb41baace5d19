package inside

import (
	"fmt"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/test/guest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestNode installs vmlet as deploy/systemd/README.md says and does to it what
// administrators do while a guest runs. Its parts build on each other.
func TestNode(t *testing.T) {
	insideOrSkip(t)
	install(t)
	web := boot(t, "web", "--kernel", guests+"/counts")
	for _, step := range []struct {
		name string
		do   func(*testing.T, vm)
	}{
		{"cgroup", ownCgroup},
		{"metrics", metrics},
		{"restart", restart},
		{"stop and start", stopAndStart},
		{"kill", kill},
		{"upgrade", upgrade},
		{"save and restore", saveAndRestore},
		{"delete", remove},
	} {
		t.Run(step.name, func(t *testing.T) { step.do(t, web) })
	}
}

// install carries out what the README says, and has metrics served.
func install(t *testing.T) {
	t.Helper()
	_, rest, _ := strings.Cut(read(t, first+"/deploy/systemd/README.md"), "```\n")
	commands, _, found := strings.Cut(rest, "```\n")
	if !found {
		t.Fatal("deploy/systemd/README.md has no commands")
	}
	write(t, "/etc/vmlet.yaml", "cgroup: {required: true}\nendpoints:\n  metrics: {address: \"127.0.0.1:8080\"}\n")
	write(t, "/etc/systemd/system/vmlet.service.d/override.conf",
		"[Service]\nExecStart=\nExecStart=/usr/local/bin/vmlet-agent --config /etc/vmlet.yaml\n")
	command(t, "sh", "-e", "-c", "cd "+first+"\n"+commands)
}

// ownCgroup: systemd counts shim and VMM to a unit that is not the agent's.
func ownCgroup(t *testing.T, web vm) {
	p := web.process(t)
	status := command(t, "systemctl", "status", "--no-pager", "--lines=0", fmt.Sprint(p.GetVmmPid()))
	for _, wanted := range []string{fmt.Sprint(p.GetVmmPid()) + " ", fmt.Sprint(p.GetShimPid()) + " ", "qemu-system", "vmlet-shim"} {
		if !strings.Contains(status, wanted) {
			t.Errorf("the VMM's unit doesn't have %q:\n%s", wanted, status)
		}
	}
	if strings.Contains(cgroupOf(t, p.GetVmmPid()), "vmlet.service") {
		t.Errorf("the VMM is in %s, which a restart of the agent's unit empties", cgroupOf(t, p.GetVmmPid()))
	}
}

func metrics(t *testing.T, web vm) {
	charged, err := strconv.ParseFloat(strings.TrimSpace(read(t, "/sys/fs/cgroup"+cgroupOf(t, web.process(t).GetVmmPid())+"/memory.current")), 64)
	if err != nil {
		t.Fatal(err)
	}
	for name, least := range map[string]float64{
		"vmlet_vm_memory_charged_bytes":        charged / 2, // it changes all the time
		"kubevirt_vmi_cpu_usage_seconds_total": 0.001,
	} {
		if got := metric(t, name, web.name); got < least {
			t.Errorf("%s is %v, want at least %v", name, got, least)
		}
	}
}

// restart: the agent is another process, the VM's are the same, and its guest goes on.
func restart(t *testing.T, web vm) {
	web.survives(t, func() { command(t, "systemctl", "restart", "vmlet") })
}

func stopAndStart(t *testing.T, web vm) {
	web.survives(t, func() {
		command(t, "systemctl", "stop", "vmlet")
		command(t, "systemctl", "start", "vmlet")
	})
}

// kill: systemd starts the agent again, as often as the unit's start limit lets it.
func kill(t *testing.T, web vm) {
	times := 1
	if exists(everything) {
		times = 8
	}
	command(t, "systemctl", "reset-failed", "vmlet") // the starts before count, too
	for range times {
		web.survives(t, func() { command(t, "systemctl", "kill", "--signal=KILL", "vmlet") })
	}
	command(t, "systemctl", "reset-failed", "vmlet")
}

func upgrade(t *testing.T, web vm) {
	web.survives(t, func() {
		command(t, "install", "-m", "0755", second+"/bin/vmlet", second+"/bin/vmlet-agent", second+"/bin/vmlet-shim", "/usr/local/bin/")
		command(t, "systemctl", "restart", "vmlet")
	})
	if version := command(t, "vmlet", "version"); strings.Count(version, "second") != 2 {
		t.Errorf("the client and the agent that was upgraded are\n%s", version)
	}
}

// saveAndRestore: a VM that an earlier agent has started is saved, and goes on with a
// shim of the new version.
func saveAndRestore(t *testing.T, web vm) {
	counted := web.counted(t)
	command(t, "vmlet", "save", web.name, "/var/tmp/web")
	command(t, "vmlet", "restore", "/var/tmp/web")
	web.goesOnFrom(t, counted)
	ownCgroup(t, web)
	web.survives(t, func() { command(t, "systemctl", "restart", "vmlet") })
}

// remove: nothing is left of a VM that was killed and deleted.
func remove(t *testing.T, web vm) {
	cgroup := "/sys/fs/cgroup" + cgroupOf(t, web.process(t).GetVmmPid())
	command(t, "vmlet", "kill", web.name)
	command(t, "vmlet", "delete", web.name)
	// systemd lets go of a unit when the kernel has told it that the cgroup is empty.
	until(func() bool { return !exists(cgroup) })
	until(func() bool {
		return !strings.Contains(command(t, "systemctl", "list-units", "--all", "--plain"), web.name)
	})
	if left, err := filepath.Glob("/sys/fs/cgroup/*vmlet*/*" + web.name + "*"); len(left) > 0 || err != nil {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

// vm is a VM of the node's.
type vm struct{ name string }

// boot starts a VM and waits until its guest counts.
func boot(t *testing.T, name string, args ...string) vm {
	t.Helper()
	v := vm{name}
	command(t, "vmlet", append([]string{"run", name, "--detach", "--hypervisor", "emulation", "--memory", "32Mi"}, args...)...)
	v.countsPast(t, 0)
	return v
}

func (v vm) process(t *testing.T) *nodev1.ProcessStatus {
	t.Helper()
	return v.get(t).GetStatus().GetProcess()
}

// survives: the agent's unit has another process afterwards and is well; the VM has the
// same and its guest goes on.
func (v vm) survives(t *testing.T, do func()) {
	t.Helper()
	before, counted, agent := v.process(t), v.counted(t), unit(t, "vmlet.service")
	do()
	until(func() bool {
		now := unit(t, "vmlet.service")
		if now["ActiveState"] == "failed" {
			t.Fatalf("vmlet.service has failed\n%s", state())
		}
		return now["ActiveState"] == "active" && now["MainPID"] != agent["MainPID"]
	})
	if after := v.process(t); after.GetVmmPid() != before.GetVmmPid() || after.GetShimPid() != before.GetShimPid() {
		t.Errorf("%s had %v and has %v", v.name, before, after)
	}
	v.goesOnFrom(t, counted)
	if list := command(t, "vmlet", "list"); !strings.Contains(list, "running") {
		t.Errorf("vmlet list says\n%s", list)
	}
}

// goesOnFrom: the guest counts on, and was booted no second time. The first may be in the
// log no longer.
func (v vm) goesOnFrom(t *testing.T, counted int) {
	t.Helper()
	v.countsPast(t, counted)
	if n := strings.Count(command(t, "vmlet", "logs", v.name), guest.UpLine); n > 1 {
		t.Errorf("%s was booted %d times", v.name, n)
	}
}

// until waits for something that is bound to happen; the reader of the console notices
// if it doesn't.
func until(happened func() bool) {
	for !happened() {
		time.Sleep(200 * time.Millisecond)
	}
}
