package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/vmlet/vmlet/test/cluster/internal/wire"
)

// NodeName is the name of a cluster's first node. Further ones have a number after it, from
// vmlet-node-2 on.
const NodeName = "vmlet-node"

// MaxNodes is how many nodes a cluster can have: its network has no room for more.
const MaxNodes = 5

// Node is a node of a cluster: processes below a first one, in namespaces and cgroups of their
// own, and a folder that has what would be on its disk.
type Node struct {
	cluster *Cluster
	number  int // from 1
	dir     string

	mu   sync.Mutex
	init nodeProcess // nil: the node is off
}

func (c *Cluster) newNode(number int) *Node {
	n := &Node{cluster: c, number: number, dir: c.dir}
	if number > 1 {
		n.dir = filepath.Join(c.dir, n.own())
	}
	return n
}

// own is a further node's name in the cluster's folder, its cgroup and at its bridge.
func (n *Node) own() string { return fmt.Sprintf("node-%d", n.number) }

// Name is the node's.
func (n *Node) Name() string {
	if n.number == 1 {
		return NodeName
	}
	return fmt.Sprintf("%s-%d", NodeName, n.number)
}

func (n *Node) path(elem ...string) string {
	return filepath.Join(append([]string{n.dir}, elem...)...)
}

// cgroup is the node's: a further one's is in that of the cluster.
func (n *Node) cgroup() string {
	if n.number == 1 {
		return n.cluster.name
	}
	return filepath.Join(n.cluster.name, n.own())
}

// prepare makes the node's folder, with its configuration.
func (n *Node) prepare(o Options) error {
	if err := n.folders(); err != nil {
		return err
	}
	return errors.Join(n.issue(), n.configure(o))
}

// boot starts the node's first process, and makes the node around it. No component runs yet.
func (n *Node) boot(o Options) (bootID string, err error) {
	init, err := startInit(n.cluster.path("bin/node"), n.LogFile("node"), n.componentEnded)
	if err != nil {
		return "", err
	}
	n.mu.Lock()
	n.init = init
	n.mu.Unlock()
	pid := init.pid()
	if err := enterCgroup(n.cgroup(), pid); err != nil {
		return "", err
	}
	if err := n.cluster.bridge.plug(n.own(), nodeLink, pid); err != nil {
		return "", err
	}
	setup := n.setup(o)
	if n.number > 1 {
		bootID = uuid.NewString()
		if err := os.WriteFile(n.path("boot_id"), []byte(bootID+"\n"), 0o644); err != nil {
			return "", err
		}
		setup.Binds = append(setup.Binds, wire.Bind{From: n.path("boot_id"), To: "/proc/sys/kernel/random/boot_id"})
	}
	if err := init.ask(wire.Request{Setup: setup}); err != nil {
		return "", fmt.Errorf("making the node %s: %w", n.Name(), err)
	}
	return bootID, nil
}

func (n *Node) setup(o Options) *wire.Setup {
	net := n.cluster.net
	s := &wire.Setup{
		Hostname: n.Name(), Interface: nodeLink, Addresses: []string{n.NodeAddress() + "/26"}, Gateway: net.machine(),
		Routes: net.toPods(n.number, o.IPv6), Copies: sysctls(), CopiesIn: n.path("sysctl"),
	}
	if n.number == 1 {
		s.Service = net.api()
	}
	if o.IPv6 {
		s.Addresses = append(s.Addresses, net.node6(n.number)+"/64")
	}
	for from, to := range onNode() {
		s.Binds = append(s.Binds, wire.Bind{From: n.path(from), To: to})
	}
	for _, b := range o.Binds {
		s.Binds = append(s.Binds, wire.Bind(b))
	}
	return s
}

// loadImages imports all that the cluster's nodes have, once containerd answers.
func (n *Node) loadImages(ctx context.Context) error {
	if err := n.answering(ctx, Containerd); err != nil {
		return err
	}
	n.cluster.members.Lock()
	images := slices.Clone(n.cluster.images)
	n.cluster.members.Unlock()
	for _, tar := range images {
		if err := n.loadImage(ctx, tar); err != nil {
			return err
		}
	}
	return nil
}

// startKubelet starts what else is on every node.
func (n *Node) startKubelet(o Options) error {
	if err := n.startComponents(Kubelet, Proxy); err != nil || !o.Storage {
		return err
	}
	return n.startComponents(LoopDriver)
}

// ready waits until pods can run on the node.
func (n *Node) ready(ctx context.Context) error {
	for _, what := range []string{"create", "condition=Ready"} {
		// ctx ends earlier.
		if _, err := n.cluster.Kubectl(ctx, "wait", "--timeout=24h", "--for="+what, "node/"+n.Name()); err != nil {
			return n.blame(Kubelet, err)
		}
	}
	n.cluster.logf("node %s is ready", n.Name())
	return nil
}

// loadImage imports a tar of images for the node's kubelet to find.
func (n *Node) loadImage(ctx context.Context, tar string) error {
	c := n.cluster
	_, err := c.run(ctx, nil, c.programs["ctr"], "--address", n.containerd(), "--namespace", "k8s.io", "image", "import", tar)
	if err != nil {
		return n.blame(Containerd, fmt.Errorf("importing %s: %w", tar, err))
	}
	return nil
}

func (n *Node) containerd() string { return n.Path(containerdSocket) }

// running is the node's first process, if it is on.
func (n *Node) running() (nodeProcess, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.init == nil {
		return nil, fmt.Errorf("node %s is off", n.Name())
	}
	return n.init, nil
}

// pid is that of the node's first process; 0: it is off.
func (n *Node) pid() string {
	init, err := n.running()
	if err != nil {
		return "0"
	}
	return fmt.Sprint(init.pid())
}

// InNode runs a program of the machine's in the node's namespaces and returns
// what it printed. Nothing that it starts outlives the node.
func (n *Node) InNode(ctx context.Context, args ...string) (string, error) {
	return n.cluster.run(ctx, nil, n.cluster.programs["nsenter"], n.enter(args...)...)
}

// enter are nsenter's arguments to run a program in the node's namespaces.
func (n *Node) enter(args ...string) []string {
	return append([]string{"--target", n.pid(), "--pid", "--mount", "--net", "--uts", "--"}, args...)
}

// KubeletDir is the kubelet's folder as the machine sees it, on the node
// /var/lib/kubelet: sockets in device-plugins and pod-resources can be used, and
// what is in volumes is there unless it is a mount of its own.
func (n *Node) KubeletDir() string { return n.path("lib/kubelet") }

// Path is what a file of the node's is called on this machine: also one in a mount
// that is the node's alone. It is nowhere if the node is off.
func (n *Node) Path(onNode string) string { return filepath.Join("/proc", n.pid(), "root", onNode) }

// LogFile is where a component's log is.
func (n *Node) LogFile(component string) string { return n.path("log", component+".log") }

// NodeAddress is the node's; pods' addresses can be reached from the machine, too.
func (n *Node) NodeAddress() string { return n.cluster.net.node(n.number) }

// end ends all that runs on the node.
func (n *Node) end() error {
	n.mu.Lock()
	init, own := n.init.(*initProcess)
	n.init = nil
	n.mu.Unlock()
	if !own {
		return nil
	}
	return errors.Join(freezeCgroup(n.cgroup(), false), init.end())
}
