package kubernetes_test

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/test/guest"
)

// testMemory: what a guest touches is charged to its pod, before a save and after a
// restore, and not to the agent; and it is all there again.
func (d *deployment) testMemory(t *testing.T) {
	touched := uint64(pattern().MiB) << 20
	agent := d.agent(t)
	agentUID := d.kubectl(t, "-n", agent.Namespace, "get", "pod", agent.Name, "-o", "jsonpath={.metadata.uid}")
	atFirst := d.charged(t, agentUID)
	check := func(p vmPod) {
		t.Helper()
		uid := d.kubectl(t, "-n", p.in(), "get", "pod", p.name, "-o", "jsonpath={.metadata.uid}")
		if got := d.charged(t, uid); got < touched {
			t.Errorf("%s: %d MiB are charged to the pod, want the %d that the guest has touched", p.vm(), got>>20, touched>>20)
		}
		if got := d.charged(t, agentUID); got > atFirst+touched/2 {
			t.Errorf("%s: %d MiB are charged to the agent, which had %d before", p.vm(), got>>20, atFirst>>20)
		}
		c := d.attach(t, "exec", "-i", "-n", "vmlet", agents, "--", "vmlet", "console", p.vm())
		c.until(t, guest.CountPrefix)
		c.send(t, string(guest.KeyVerify))
		d.says(t, p, fmt.Sprintf("%s%08x", guest.VerifyPrefix, pattern().Sum()))
	}
	before, after := d.guestPod("filled", "filled.yaml"), d.restorePod("refilled", "/saved/filled")
	d.createVMs(t, before)
	d.says(t, before, fmt.Sprint(guest.FilledPrefix, pattern().MiB))
	check(before)
	d.mustVmlet(t, "save", before.vm(), "/saved/filled")
	d.ended(t, before)
	d.deleteVMs(t, before)
	d.createVMs(t, after)
	d.counted(t, after, 3)
	check(after)
	d.deleteVMs(t, after)
}

// charged is how much memory a pod uses, in bytes, as the kernel counts it.
func (d *deployment) charged(t *testing.T, uid string) uint64 {
	t.Helper()
	// The kubelet's driver is cgroupfs: a pod's cgroup has its UID in its name.
	// Others' cgroups may go while they are listed, of which find makes an error.
	out, err := d.InNode(d.ctx, "find", "/sys/fs/cgroup", "-ignore_readdir_race", "-type", "d", "-name", "pod"+uid, "-prune")
	must(t, err)
	for _, cgroup := range strings.Fields(out) {
		for _, file := range []string{"memory.usage_in_bytes", "memory.current"} {
			content, err := d.InNode(d.ctx, "cat", filepath.Join(cgroup, file))
			if err != nil {
				continue
			}
			n, err := strconv.ParseUint(strings.TrimSpace(content), 10, 64)
			must(t, err)
			return n
		}
	}
	t.Fatalf("the pod %s has no cgroup that counts memory: %q", uid, out)
	return 0
}
