package kubernetes_test

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/test/cluster"
)

const liarImage = "vmlet.test/liar:1"

// lies are the ways in which test/kubernetes/liar lies, and what the agent says of
// each.
func lies() map[string]string {
	const protocol = "not the shim's protocol"
	return map[string]string{
		"nonsense": protocol, "length": protocol, "message": protocol,
		"mute": "no reply from the shim", "flood": "", // it says so after a while
		"adopted": "what the shim keeps of the launch: ", "described": "labels: a list where fields are wanted",
		"symlink": "socket operation on non-socket", "folder": "socket operation on non-socket",
		"welcome": protocol, "events": "", "answers": "xxxx", "kept": "what the shim keeps of the launch: ", "values": "values", "monitor": "",
	}
}

// crowds are liars that run several times at once, as their lies add up.
func crowds() map[string]int { return map[string]int{"welcome": 3, "events": 3, "monitor": 3} }

// liars are pods that lie for as long as all other tests last.
func (d *deployment) liars(t *testing.T) {
	t.Helper()
	program, image := filepath.Join(t.TempDir(), "liar"), filepath.Join(t.TempDir(), "liar.tar")
	must(t, cluster.BuildProgram(d.ctx, program, "github.com/vmlet/vmlet/test/kubernetes/liar"))
	must(t, cluster.ProgramImage(image, liarImage, program))
	must(t, d.LoadImage(d.ctx, image))
	var pods []vmPod
	add := func(name, way string) {
		pods = append(pods, vmPod{
			namespace: "default", name: name,
			change: func(pod, container object) {
				container["image"], container["command"] = liarImage, []string{"/liar", way}
				container["resources"] = object{"requests": object{"cpu": "5m"}, "limits": object{"memory": "256Mi"}}
			},
		})
	}
	for way := range lies() {
		add("liar-"+way, way)
		for i := range crowds()[way] {
			add(fmt.Sprintf("liar-%s-%d", way, i), way)
		}
	}
	d.createVMs(t, pods...)
}

// testLiars: the agent has said of each that it lies, and not too often; it has
// served all others meanwhile, and none is taken for another pod's.
func (d *deployment) testLiars(t *testing.T) {
	for way, want := range lies() {
		if want == "" {
			continue
		}
		uid := d.kubectl(t, "get", "pod", "liar-"+way, "-o", "jsonpath={.metadata.uid}")
		var said []string
		d.eventually(t, func() bool {
			said = nil
			for line := range strings.Lines(d.kubectl(t, "-n", "vmlet", "logs", agents)) {
				if strings.Contains(line, uid) && (strings.Contains(line, `"level":"WARN"`) || strings.Contains(line, `"level":"ERROR"`)) {
					said = append(said, line)
				}
			}
			return len(said) > 0
		}, func() string { return "the agent says nothing of the liar " + way })
		for _, line := range said {
			if len(line) > 64<<10 || !strings.Contains(line, want) {
				t.Errorf("of the liar %s the agent says, in %d bytes, %.1000s; want %q", way, len(line), line, want)
			}
		}
	}
	for name, vm := range d.listed(t) {
		// One of them speaks for itself only, and may do so as a VMM.
		if strings.HasPrefix(name, "default/liar-") && !strings.HasPrefix(name, "default/liar-monitor") && vm.GetStatus().GetState() == running {
			t.Errorf("%s is taken for a VM: %v", name, vm.GetStatus())
		}
	}
	// The agent's pod has a memory limit.
	if restarts := d.kubectl(t, "-n", "vmlet", "get", "pod", d.agent(t).Name, "-o", "jsonpath={.status.containerStatuses[0].restartCount}"); restarts != "0" {
		t.Errorf("the agent was restarted %s times", restarts)
	}
	if peak := d.peak(t); peak > agentLimit/2 {
		t.Errorf("the agent has had %d MiB among liars, want no more than half of its limit of %d MiB", peak>>20, agentLimit>>20)
	} else {
		t.Logf("the agent has had %d MiB", peak>>20)
	}
	if limit := fmt.Sprintf(`"msg":"memory limit set","bytes":%d`, agentLimit*8/10); !strings.Contains(d.kubectl(t, "-n", "vmlet", "logs", agents), limit) {
		t.Errorf("the agent has not said %s", limit)
	}
	// An honest pod among them.
	p := d.guestPod("first", "other-name.yaml")
	d.createVMs(t, p)
	d.counted(t, p, 3)
	if vm := d.state(t, p.vm(), running); vm.GetSpec().GetName() != "other" {
		t.Errorf("the VM's own name is %q, want that of the specification", vm.GetSpec().GetName())
	}
	for _, name := range []string{"other", "guests/other", "default/liar-adopted"} {
		if _, err := d.vmlet("pause", name); err == nil {
			t.Errorf("there is a VM %s, by what a pod says of itself", name)
		}
	}
	d.deleteVMs(t, p)
}

// agentLimit is that of deploy/base/daemonset.yaml, in bytes.
const agentLimit = 256 << 20

// peak is the most memory that the agent's process has had, in bytes (VmHWM, proc(5)).
func (d *deployment) peak(t *testing.T) (bytes uint64) {
	t.Helper()
	uid := d.kubectl(t, "-n", "vmlet", "get", "pod", d.agent(t).Name, "-o", "jsonpath={.metadata.uid}")
	// The kubelet's driver is cgroupfs: a pod's cgroup has its UID in its name.
	said, err := d.InNode(d.ctx, "sh", "-c", `for p in $(cat $(find /sys/fs/cgroup -path "*pod$0/*/cgroup.procs") | sort -u); do cat "/proc/$p/status"; done`, uid)
	must(t, err)
	for line := range strings.Lines(said) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmHWM:" {
			kib, err := strconv.ParseUint(fields[1], 10, 64)
			must(t, err)
			bytes = max(bytes, kib<<10)
		}
	}
	if bytes == 0 {
		t.Fatalf("no process of the agent's pod has a VmHWM: %s", said)
	}
	return bytes
}
