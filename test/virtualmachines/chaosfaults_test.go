package virtualmachines_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/vmlet/vmlet/test/cluster"
)

// chaosFault is something that happens, and what was done in its words. What lasts is mended by another
// call; nil: there is nothing to mend.
type chaosFault func(t *testing.T, c *chaos, r chaosRound) (what string, mend func() error)

var chaosFaults = map[string]chaosFault{
	"VMM":                chaosVMM,
	"shim":               chaosShim,
	"agents":             chaosProgram("vmlet-agent"),
	"controllers":        chaosProgram("vmlet-controller"),
	"leading controller": chaosLeader,
	"vmlet-api":          chaosProgram("vmlet-api"),
	"kubelet":            chaosComponent(cluster.Kubelet),
	"containerd":         chaosComponent(cluster.Containerd),
	apiServerFault:       chaosAPIServer,
	"cut from API":       chaosCut("the API server", cluster.ControlPlane),
	"cut from nodes":     chaosCut("the other node's pods", cluster.OtherNodes),
	"cut off":            chaosCut("all", cluster.ControlPlane|cluster.OtherNodes),
	"frozen":             chaosFrozen,
	"node":               chaosNode,
	"node for good":      chaosOutOfService,
	"Node deleted":       chaosNodeDeleted,
}

const apiServerFault = "API server"

func faultNames() []string { return slices.Sorted(maps.Keys(chaosFaults)) }

func chaosVMM(t *testing.T, c *chaos, r chaosRound) (string, func() error) {
	vm := c.vms[r.target%len(c.vms)]
	pids := writersOf(c.runningVMMs(), vm.disk)
	vm.note(chaosEvent{ends: "its VMM is killed"})
	kill(t, pids...)
	return fmt.Sprintf("%d VMMs of %s were killed", len(pids), vm.name), nil
}

func chaosShim(t *testing.T, c *chaos, r chaosRound) (string, func() error) {
	vm := c.vms[r.target%len(c.vms)]
	pids := shimsOf(t, writersOf(c.runningVMMs(), vm.disk))
	vm.note(chaosEvent{ends: "its shim is killed"})
	kill(t, pids...)
	return fmt.Sprintf("%d shims of %s were killed", len(pids), vm.name), nil
}

// chaosProgram kills all processes of one of vmlet's programs, which come back in other pods: the kubelet
// would wait before it starts those of the same one once more.
func chaosProgram(program string) chaosFault {
	return func(t *testing.T, c *chaos, _ chaosRound) (string, func() error) {
		var pids []int
		for _, p := range c.podsOf(t, program) {
			pids = append(pids, c.processes(t, program, p.Name)...)
		}
		kill(t, pids...)
		(&walk{installed: c.installed}).comeBack(t, program)
		return fmt.Sprintf("%d processes %s were killed", len(pids), program), nil
	}
}

func chaosLeader(t *testing.T, c *chaos, _ chaosRound) (string, func() error) {
	kill(t, c.leader(t))
	(&walk{installed: c.installed}).comeBack(t, "vmlet-controller")
	return "the leading controller was killed", nil
}

// chaosComponent kills a component of a node.
func chaosComponent(name string) chaosFault {
	return func(t *testing.T, c *chaos, r chaosRound) (string, func() error) {
		n := c.Nodes()[r.target%len(c.Nodes())]
		must(t, n.KillComponent(name))
		return fmt.Sprintf("%s of %s was killed", name, n.Name()), func() error { return n.StartComponent(c.ctx, name) }
	}
}

func chaosAPIServer(t *testing.T, c *chaos, _ chaosRound) (string, func() error) {
	must(t, c.KillComponent(cluster.APIServer))
	return "the API server was killed", func() error { return c.StartComponent(c.ctx, cluster.APIServer) }
}

func chaosCut(from string, peers cluster.Peers) chaosFault {
	return func(t *testing.T, c *chaos, _ chaosRound) (string, func() error) {
		must(t, c.second.Cut(c.ctx, peers))
		return fmt.Sprintf("%s was cut off from %s", c.second.Name(), from), func() error { return c.second.Mend(c.ctx) }
	}
}

func chaosFrozen(t *testing.T, c *chaos, _ chaosRound) (string, func() error) {
	must(t, c.second.Freeze())
	return c.second.Name() + " was frozen", c.second.Thaw
}

// chaosNode cuts a node's power. Guests that still have a process run on the other one.
func chaosNode(t *testing.T, c *chaos, _ chaosRound) (string, func() error) {
	before := c.runningVMMs()
	must(t, c.second.Kill())
	var ended []string
	for _, vm := range c.vms {
		if !slices.ContainsFunc(writersOf(before, vm.disk), func(pid int) bool { return !errors.Is(unix.Kill(pid, 0), unix.ESRCH) }) {
			vm.note(chaosEvent{ends: "its node is killed"})
			ended = append(ended, vm.name)
		}
	}
	return fmt.Sprintf("%s was killed with [%s]", c.second.Name(), strings.Join(ended, " ")), func() error { return c.second.Boot(c.ctx) }
}

// chaosNodeDeleted deletes the Node object of a machine that runs, which its kubelet makes again when it starts,
// before Kubernetes deletes the pods of the node: no guest may boot.
func chaosNodeDeleted(t *testing.T, c *chaos, _ chaosRound) (string, func() error) {
	name := c.second.Name()
	c.kubectl(t, "delete", "node", name, "--wait=true")
	c.kubectl(t, "wait", "--for=delete", "csinode/"+name, "--timeout=24h") // which the kubelet makes once
	must(t, c.second.RestartKubelet(c.ctx))
	c.kubectl(t, "wait", "--for=condition=Ready", "node/"+name, "--timeout=24h")
	return "the Node of " + name + " was deleted, and its kubelet restarted", nil
}

// chaosOutOfService cuts a node's power, has its VMs start on the other one, and boots it then.
func chaosOutOfService(t *testing.T, c *chaos, r chaosRound) (string, func() error) {
	what, boot := chaosNode(t, c, r)
	const taint = corev1.TaintNodeOutOfService + "=nodeshutdown:NoExecute"
	c.kubectl(t, "wait", "--for=condition=Ready=Unknown", "node/"+c.second.Name(), "--timeout=24h")
	c.kubectl(t, "taint", "node", c.second.Name(), taint)
	for _, vm := range c.vms {
		c.rests(t, vm)
	}
	return what + ", and said to be out of service", func() error {
		err := boot()
		c.kubectl(t, "taint", "node", c.second.Name(), corev1.TaintNodeOutOfService+"-")
		return err
	}
}
