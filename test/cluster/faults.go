package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vmlet/vmlet/test/suites"
)

// Peers are those that a node can be cut off from.
type Peers int

const (
	// ControlPlane is the first node itself: the API server, DNS, and what else runs there beside pods.
	ControlPlane Peers = 1 << iota
	// OtherNodes are the pods of all other nodes, and further nodes themselves.
	OtherNodes
)

// further says why something can't be done to a node, if it is the first.
func (n *Node) further(what string) error {
	if n.number == 1 {
		return fmt.Errorf("node %s has the control plane beside it and can't be %s: take a further one", n.Name(), what)
	}
	return nil
}

// Cut has nothing get through between a node and its peers, in place of an earlier Cut. This
// machine reaches the node as before.
func (n *Node) Cut(ctx context.Context, peers Peers) error {
	if err := n.further("cut off"); err != nil {
		return err
	}
	return n.nft(ctx, noCut+fmt.Sprintf(cut, strings.Join(n.addresses(peers), ", "), nodeLink))
}

// Mend takes back what Cut did.
func (n *Node) Mend(ctx context.Context) error { return n.nft(ctx, noCut) }

const (
	noCut = "add table inet vmlet-cut; delete table inet vmlet-cut;\n"
	// Where addresses of services have been translated, and not yet back.
	cut = `table inet vmlet-cut {
	set peers { type ipv4_addr; flags interval; elements = { %s } }
	chain in { type filter hook prerouting priority raw; iifname %q ip saddr @peers drop; }
	chain out { type filter hook postrouting priority srcnat; oifname %[2]q ip daddr @peers drop; }
}
`
)

// addresses are those of a node's peers. IPv6 is for pods that reach each other: it stays.
func (n *Node) addresses(peers Peers) []string {
	net := n.cluster.net
	var all []string
	if peers&ControlPlane != 0 {
		all = append(all, net.node(1))
	}
	for number := 1; number <= MaxNodes && peers&OtherNodes != 0; number++ {
		if number == n.number {
			continue
		}
		all = append(all, net.pods(number))
		if number > 1 {
			all = append(all, net.node(number))
		}
	}
	return all
}

func (n *Node) nft(ctx context.Context, rules string) error {
	c := n.cluster
	if _, err := n.running(); err != nil {
		return err
	}
	_, err := c.run(ctx, strings.NewReader(rules), c.programs["nsenter"], n.enter(c.programs["nft"], "-f", "-")...)
	return err
}

// Kill ends all that runs on a node without warning, guests included, as when its power is cut.
// What would be on its disk stays.
func (n *Node) Kill() error {
	if err := n.further("killed"); err != nil {
		return err
	}
	n.mu.Lock()
	init, own := n.init.(*initProcess)
	if own {
		n.init = nil
	}
	n.mu.Unlock()
	if !own {
		return cmp.Or(n.cluster.joined(), fmt.Errorf("node %s is off", n.Name()))
	}
	loops := n.kubeletLoops(init)
	errs := []error{freezeCgroup(n.cgroup(), false), init.kill(), removeCgroup(n.cgroup()), n.cluster.bridge.unplug(n.own())}
	for _, device := range loops {
		errs = append(errs, detachLoop(device))
	}
	return errors.Join(append(errs, os.RemoveAll(n.path("run")))...) // which is in memory elsewhere
}

// Boot starts a node that was killed, and returns when it is ready. Its boot ID is another one.
func (n *Node) Boot(ctx context.Context) error {
	if err := n.cluster.joined(); err != nil {
		return err
	}
	if _, err := n.running(); err == nil {
		return fmt.Errorf("node %s is on", n.Name())
	}
	ctx, cancel := suites.Patience(ctx, patience)
	defer cancel()
	if err := n.folders(); err != nil {
		return err
	}
	return n.start(ctx, false)
}

// start boots a node that is off, and returns when it is ready. A new one has no images yet.
func (n *Node) start(ctx context.Context, fresh bool) error {
	c := n.cluster
	bootID, err := n.boot(c.options)
	if err == nil {
		err = n.startComponents(Containerd)
	}
	if err == nil && fresh {
		err = n.loadImages(ctx)
	}
	if err == nil {
		err = n.answering(ctx, Containerd)
	}
	if err == nil {
		err = n.startKubelet(c.options)
	}
	if err == nil {
		err = n.ready(ctx)
	}
	if err != nil {
		return err
	}
	_, err = c.Kubectl(ctx, "wait", "--timeout=24h", "--for=jsonpath={.status.nodeInfo.bootID}="+bootID, "node/"+n.Name())
	return err
}

// Freeze has all that runs on a node stand still, guests included.
func (n *Node) Freeze() error {
	if err := n.further("frozen"); err != nil {
		return err
	}
	return n.setFrozen(true)
}

// Thaw has it go on.
func (n *Node) Thaw() error { return n.setFrozen(false) }

func (n *Node) setFrozen(frozen bool) error {
	if _, err := n.running(); err != nil {
		return err
	}
	return freezeCgroup(n.cgroup(), frozen)
}

// Cordon has no new pods come to a node.
func (n *Node) Cordon(ctx context.Context) error { return n.administer(ctx, "cordon") }

// Uncordon takes that back.
func (n *Node) Uncordon(ctx context.Context) error { return n.administer(ctx, "uncordon") }

// Drain has a node's pods leave it, but for those of DaemonSets, and returns when they have.
func (n *Node) Drain(ctx context.Context) error {
	return n.administer(ctx, "drain", "--ignore-daemonsets", "--delete-emptydir-data")
}

func (n *Node) administer(ctx context.Context, verb string, flags ...string) error {
	_, err := n.cluster.Kubectl(ctx, append([]string{verb, n.Name()}, flags...)...)
	return err
}

// AddNode has the cluster have one more node, and returns when it is ready.
func (c *Cluster) AddNode(ctx context.Context) (*Node, error) {
	if err := c.joined(); err != nil {
		return nil, err
	}
	ctx, cancel := suites.Patience(ctx, patience)
	defer cancel()
	if c.options.Storage && !c.options.attached() {
		return nil, errors.New("a cluster that began with one node does not attach volumes: start it with two")
	}
	n, err := c.freeNode()
	if err != nil {
		return nil, err
	}
	if err := n.prepare(c.options); err != nil {
		return nil, err
	}
	return n, n.start(ctx, true)
}

// freeNode is a new one of the first number that none has.
func (c *Cluster) freeNode() (*Node, error) {
	c.members.Lock()
	defer c.members.Unlock()
	for number := 2; number <= MaxNodes; number++ {
		if !slices.ContainsFunc(c.nodes, func(n *Node) bool { return n.number == number }) {
			n := c.newNode(number)
			c.nodes = append(c.nodes, n)
			return n, nil
		}
	}
	return nil, fmt.Errorf("the cluster has %d nodes, and room for no more", MaxNodes)
}

// RemoveNode ends all that runs on a node without warning, and takes away what would be on its
// disk and its Node object.
func (c *Cluster) RemoveNode(ctx context.Context, n *Node) error {
	if err := cmp.Or(n.further("removed"), c.joined()); err != nil {
		return err
	}
	if _, err := n.running(); err == nil {
		if err := n.Kill(); err != nil {
			return err
		}
	}
	c.members.Lock()
	c.nodes = slices.DeleteFunc(c.nodes, func(other *Node) bool { return other == n })
	c.members.Unlock()
	_, err := c.Kubectl(ctx, "delete", "node", n.Name(), "--ignore-not-found")
	return errors.Join(err, os.RemoveAll(n.dir))
}

// kubeletLoops are the loop devices that the kubelet has put over those of volumes of the mode
// Block, to keep their numbers: unlike others they don't go with the processes.
func (n *Node) kubeletLoops(init nodeProcess) []*os.File {
	var found []*os.File
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file") // the pattern is right
	for _, file := range files {
		of, err := os.ReadFile(file)
		path := strings.TrimSpace(string(of))
		if err != nil || !strings.HasPrefix(path, "/var/lib/kubelet/") {
			continue
		}
		if _, err := os.Stat(filepath.Join("/proc", fmt.Sprint(init.pid()), "root", path)); err != nil {
			continue // another node's
		}
		if device, err := os.Open("/dev/" + filepath.Base(filepath.Dir(filepath.Dir(file)))); err == nil {
			found = append(found, device)
		}
	}
	return found
}
