// Package cluster brings up a real Kubernetes cluster on this machine: etcd, the
// API server, scheduler and controller manager, CoreDNS, and nodes, each with containerd,
// a kubelet and kube-proxy, for tests and to try things. It needs root, and what
// test/setup cluster installs and builds.
//
// Each node is in PID, mount, network and UTS namespaces of its own, below one
// process that ends with the process that called [Start], however that ends;
// the kernel then takes processes, mounts and interfaces away. What is left by
// a killed caller, a folder and empty cgroups, the next Start removes. On a
// node, /run, /var/lib, and /var/log are its own, so that the kubelet's folder is
// where it is on any node; all other files are the machine's. The control plane is on
// the first node.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/vmlet/vmlet/test/cluster/internal/pki"
	"github.com/vmlet/vmlet/test/suites"
)

// patience is how long any step may take on a machine that is not busy: see
// [suites.Patience].
const patience = 3 * time.Minute

// Options are what a cluster may differ in. The zero value is good.
type Options struct {
	// Nodes is how many nodes there are, up to [MaxNodes]; 0: one.
	Nodes int
	// Images are tars to import, as [Cluster.LoadImage] does. A node that comes later imports them,
	// too, from the same files.
	Images []string
	// Kubelet has fields of the KubeletConfiguration that are to be other than
	// usual, such as topologyManagerPolicy.
	Kubelet map[string]any
	// Binds are put over the node's files and folders, which have to be there:
	// a made-up tree over /sys/devices/system/node, say.
	Binds []Bind
	// Storage has the cluster make volumes for claims: see test/cluster/README.md.
	Storage bool
	// Multus has the cluster's pods ask for further networks: see test/cluster/README.md.
	Multus bool
	// IPv6 gives each pod an IPv6 address, too, at which other pods reach it. Services have none.
	IPv6 bool
	// Logf, if there is one, is told what is being done.
	Logf func(format string, args ...any) `json:"-"`
}

// Bind puts From, the machine's, in the place of To on the node. From is in none
// of the folders that the node has of its own.
type Bind struct{ From, To string }

// Cluster is a running one, with the methods of its first node. They may be called at the
// same time, but for Stop.
type Cluster struct {
	*Node
	options   Options
	name      string
	lock      *os.File
	programs  programs
	authority *pki.Authority
	bridge    *bridge
	net       network
	connected bool
	logf      func(string, ...any)
	stop      sync.Once
	owner     *owner // nil: this program has started it

	members sync.Mutex
	nodes   []*Node  // by number; the first is Node
	images  []string // that every node has

	// broken ends when a component does that shouldn't.
	broken context.Context
	fail   context.CancelCauseFunc
}

// Start brings up a cluster, and returns when its nodes are ready. What earlier
// ones have left whose caller was killed it removes. An error says which
// component failed, with the end of its log, and nothing is left of it.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if err := Unfit(); err != nil {
		return nil, err
	}
	c, err := newCluster(o)
	if err != nil {
		return nil, err
	}
	ctx, cancel := suites.Patience(ctx, patience)
	defer cancel()
	if err := c.up(ctx, o); err != nil {
		return nil, errors.Join(err, c.remove())
	}
	return c, nil
}

func newCluster(o Options) (*Cluster, error) {
	found, err := findPrograms()
	if err == nil && o.Multus {
		err = found.find(multus, multus)
	}
	if err == nil && o.attached() {
		err = found.find("storage", LoopAttacher)
	}
	if err == nil && o.Nodes > MaxNodes {
		err = fmt.Errorf("%d nodes are too many: a cluster has at most %d", o.Nodes, MaxNodes)
	}
	if err != nil {
		return nil, err
	}
	logf := o.Logf
	if logf == nil {
		logf = func(string, ...any) {}
	}
	dir, lock, err := claim(logf)
	if err != nil {
		return nil, err
	}
	c := &Cluster{name: filepath.Base(dir), options: o, lock: lock, programs: found, logf: logf}
	c.Node = &Node{cluster: c, number: 1, dir: dir}
	c.nodes = []*Node{c.Node}
	c.broken, c.fail = context.WithCancelCause(context.Background())
	return c, nil
}

func (c *Cluster) up(ctx context.Context, o Options) error {
	for _, step := range []func(context.Context, Options) error{c.prepareAll, c.startAll, c.allReady} {
		if err := step(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// prepareAll is all before the first component.
func (c *Cluster) prepareAll(ctx context.Context, o Options) error {
	if err := c.folders(); err != nil {
		return err
	}
	c.logf("building the nodes' first process, and an image for pods")
	err := BuildProgram(ctx, c.path("bin/node"), "github.com/vmlet/vmlet/test/cluster/node")
	if err == nil {
		err = BuildProgram(ctx, c.path("bin/pause"), "github.com/vmlet/vmlet/test/cluster/pause")
	}
	if err == nil {
		err = ProgramImage(c.path("bin/pause.tar"), PauseImage, c.path("bin/pause"))
	}
	if err != nil {
		return err
	}
	c.images = append([]string{c.path("bin/pause.tar")}, o.Images...)
	if c.bridge, err = newBridge(); err != nil {
		return err
	}
	if c.net, err = c.bridge.connect(); err != nil {
		return err
	}
	c.connected = true
	if err := errors.Join(c.issueAll(), c.configureAll(o)); err != nil {
		return err
	}
	for number := 2; number <= o.Nodes; number++ {
		c.nodes = append(c.nodes, c.newNode(number))
	}
	for _, n := range c.nodes {
		if err := n.prepare(o); err != nil {
			return err
		}
		if _, err := n.boot(o); err != nil {
			return err
		}
	}
	return nil
}

// startAll starts the components, in an order in which none waits in vain.
func (c *Cluster) startAll(ctx context.Context, o Options) error {
	c.logf("starting etcd, the API server and containerd")
	if err := c.startComponents(Etcd, APIServer); err != nil {
		return err
	}
	if err := c.onEach(func(n *Node) error { return n.startComponents(Containerd) }); err != nil {
		return err
	}
	if o.Storage {
		if err := c.buildStorage(ctx); err != nil {
			return err
		}
	}
	for _, image := range c.images {
		c.logf("importing %s", image)
	}
	if err := c.onEach(func(n *Node) error { return n.loadImages(ctx) }); err != nil {
		return err
	}
	if err := c.answering(ctx, APIServer); err != nil {
		return err
	}
	c.logf("starting the controllers, the scheduler, kubelets, proxies and DNS")
	if err := c.startComponents(ControllerManager, Scheduler, DNS); err != nil {
		return err
	}
	if err := c.onEach(func(n *Node) error { return n.startKubelet(o) }); err != nil {
		return err
	}
	if err := c.Apply(ctx, c.dnsService()); err != nil {
		return err
	}
	if o.Multus {
		if err := c.Apply(ctx, attachmentDefinition); err != nil {
			return err
		}
	}
	if o.Storage {
		return c.startStorage(ctx)
	}
	return nil
}

// onEach does something on all nodes at once.
func (c *Cluster) onEach(do func(*Node) error) error {
	var all errgroup.Group
	for _, n := range c.Nodes() {
		all.Go(func() error { return do(n) })
	}
	return all.Wait()
}

// allReady waits until pods can be made and run.
func (c *Cluster) allReady(ctx context.Context, _ Options) error {
	c.logf("waiting for the nodes to be ready")
	if err := c.onEach(func(n *Node) error { return n.ready(ctx) }); err != nil {
		return err
	}
	// ctx ends earlier.
	if _, err := c.Kubectl(ctx, "wait", "--timeout=24h", "--for=create", "serviceaccount/default"); err != nil {
		return c.blame(ControllerManager, err)
	}
	return nil
}

// Nodes are the cluster's, those that are off among them; the first is the cluster's own.
func (c *Cluster) Nodes() []*Node {
	c.members.Lock()
	defer c.members.Unlock()
	return slices.Clone(c.nodes)
}

// LoadImage imports a tar of images (OCI's or Docker's form) for the kubelets
// to find.
func (c *Cluster) LoadImage(ctx context.Context, tar string) error {
	c.logf("importing %s", tar)
	c.members.Lock()
	c.images = append(c.images, tar)
	c.members.Unlock()
	return c.onEach(func(n *Node) error { return n.loadImage(ctx, tar) })
}

// ImportCommand is what does the same in a shell on this machine, on each node.
func (c *Cluster) ImportCommand(tar string) string {
	var commands []string
	for _, n := range c.Nodes() {
		commands = append(commands, fmt.Sprintf("%s --address %s --namespace k8s.io images import %s", c.programs["ctr"], n.containerd(), tar))
	}
	return strings.Join(commands, "\n")
}

// MachineAddress is that of this machine as the node and its pods see it.
func (c *Cluster) MachineAddress() string { return c.net.machine() }

// Broken is done when a component has ended that should run; its cause says
// which.
func (c *Cluster) Broken() context.Context { return c.broken }

// Stop ends all that runs in the cluster and removes it; of one that was joined it ends the use. The error also tells
// of a component that had ended before. Once more is no error.
func (c *Cluster) Stop() error {
	var err error
	c.stop.Do(func() {
		ended := context.Cause(c.broken)
		if c.owner != nil {
			err = errors.Join(ended, c.owner.conn.Close())
			return
		}
		err = errors.Join(ended, c.remove())
	})
	return err
}
