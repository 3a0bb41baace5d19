// Package cluster brings up a real Kubernetes cluster of one node on this
// machine: etcd, the API server, scheduler and controller manager, containerd,
// a kubelet, kube-proxy and CoreDNS, for tests and to try things. It needs root, and what
// test/setup cluster installs and builds.
//
// All of it is in PID, mount, network and UTS namespaces of its own, below one
// process that ends with the process that called [Start], however that ends;
// the kernel then takes processes, mounts and interfaces away. What is left by
// a killed caller, a folder and empty cgroups, the next Start removes. On the
// node, /run, /var/lib, and /var/log are its own, so that the kubelet's folder is
// where it is on any node; all other files are the machine's.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/vmlet/vmlet/test/cluster/internal/wire"
	"github.com/vmlet/vmlet/test/suites"
)

// NodeName is the name of a cluster's node.
const NodeName = "vmlet-node"

// patience is how long any step may take on a machine that is not busy: see
// [suites.Patience].
const patience = 3 * time.Minute

// Options are what a cluster may differ in. The zero value is good.
type Options struct {
	// Images are tars to import, as [Cluster.LoadImage] does.
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
	Logf func(format string, args ...any)
}

// Bind puts From, the machine's, in the place of To on the node. From is in none
// of the folders that the node has of its own.
type Bind struct{ From, To string }

// Cluster is a running one. Its methods may be called at the same time, but
// for Stop.
type Cluster struct {
	dir, name string
	lock      *os.File
	programs  programs
	node      *node
	net       network
	connected bool
	logf      func(string, ...any)
	stop      sync.Once

	// broken ends when a component does that shouldn't.
	broken context.Context
	fail   context.CancelCauseFunc
}

// Start brings up a cluster, and returns when its node is ready. What earlier
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
		err = found.findMultus()
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
	c := &Cluster{dir: dir, name: filepath.Base(dir), lock: lock, programs: found, logf: logf}
	c.broken, c.fail = context.WithCancelCause(context.Background())
	return c, nil
}

func (c *Cluster) up(ctx context.Context, o Options) error {
	for _, step := range []func(context.Context, Options) error{c.makeNode, c.startAll, c.ready} {
		if err := step(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// makeNode is all before the first component.
func (c *Cluster) makeNode(ctx context.Context, o Options) error {
	if err := c.folders(); err != nil {
		return err
	}
	c.logf("building the node's first process, and an image for pods")
	program := c.path("bin/node")
	err := BuildProgram(ctx, program, "github.com/vmlet/vmlet/test/cluster/node")
	if err == nil {
		err = BuildProgram(ctx, c.path("bin/pause"), "github.com/vmlet/vmlet/test/cluster/pause")
	}
	if err == nil {
		err = ProgramImage(c.path("bin/pause.tar"), PauseImage, c.path("bin/pause"))
	}
	if err != nil {
		return err
	}
	if c.node, err = startNode(program, c.LogFile("node"), c.componentEnded); err != nil {
		return err
	}
	pid := c.node.cmd.Process.Pid
	if err := enterCgroup(c.name, pid); err != nil {
		return err
	}
	if c.net, err = connect(pid); err != nil {
		return err
	}
	c.connected = true
	if err := errors.Join(c.certificates(), c.configure(o)); err != nil {
		return err
	}
	if err := c.node.ask(wire.Request{Setup: c.setup(o)}); err != nil {
		return fmt.Errorf("making the node: %w", err)
	}
	return nil
}

func (c *Cluster) setup(o Options) *wire.Setup {
	s := &wire.Setup{
		Hostname: NodeName, Interface: nodeLink, Address: c.net.node() + "/26", Gateway: c.net.machine(),
		Service: c.net.api(), Copies: sysctls(), CopiesIn: c.path("sysctl"),
	}
	for from, to := range onNode() {
		s.Binds = append(s.Binds, wire.Bind{From: c.path(from), To: to})
	}
	for _, b := range o.Binds {
		s.Binds = append(s.Binds, wire.Bind(b))
	}
	return s
}

// startAll starts the components, in an order in which none waits in vain.
func (c *Cluster) startAll(ctx context.Context, o Options) error {
	c.logf("starting etcd, the API server and containerd")
	if err := c.startComponents(Etcd, APIServer, Containerd); err != nil {
		return err
	}
	if err := c.answering(ctx, Containerd); err != nil {
		return err
	}
	for _, image := range append([]string{c.path("bin/pause.tar")}, o.Images...) {
		if err := c.LoadImage(ctx, image); err != nil {
			return err
		}
	}
	if err := c.answering(ctx, APIServer); err != nil {
		return err
	}
	c.logf("starting the controllers, the scheduler, the kubelet, the proxy and DNS")
	if err := c.startComponents(ControllerManager, Scheduler, Kubelet, Proxy, DNS); err != nil {
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

// ready waits until pods can be made and run.
func (c *Cluster) ready(ctx context.Context, _ Options) error {
	c.logf("waiting for the node to be ready")
	for _, wait := range []struct {
		component string
		args      []string
	}{
		{Kubelet, []string{"--for=create", "node/" + NodeName}},
		{Kubelet, []string{"--for=condition=Ready", "node/" + NodeName}},
		{ControllerManager, []string{"--for=create", "serviceaccount/default"}},
	} {
		// ctx ends earlier.
		args := append([]string{"wait", "--timeout=24h"}, wait.args...)
		if _, err := c.Kubectl(ctx, args...); err != nil {
			return c.blame(wait.component, err)
		}
	}
	c.logf("the node is ready")
	return nil
}

// LoadImage imports a tar of images (OCI's or Docker's form) for the kubelet
// to find.
func (c *Cluster) LoadImage(ctx context.Context, tar string) error {
	c.logf("importing %s", tar)
	_, err := c.run(ctx, nil, c.programs["ctr"], "--address", c.containerd(), "--namespace", "k8s.io", "image", "import", tar)
	if err != nil {
		return c.blame(Containerd, fmt.Errorf("importing %s: %w", tar, err))
	}
	return nil
}

// ImportCommand is what does the same in a shell on this machine.
func (c *Cluster) ImportCommand(tar string) string {
	return fmt.Sprintf("%s --address %s --namespace k8s.io images import %s", c.programs["ctr"], c.containerd(), tar)
}

func (c *Cluster) containerd() string { return c.node.inside(containerdSocket) }

// InNode runs a program of the machine's in the node's namespaces and returns
// what it printed. Nothing that it starts outlives the node.
func (c *Cluster) InNode(ctx context.Context, args ...string) (string, error) {
	return c.run(ctx, nil, c.programs["nsenter"], c.enter(args...)...)
}

// enter are nsenter's arguments to run a program in the node's namespaces.
func (c *Cluster) enter(args ...string) []string {
	target := fmt.Sprint(c.node.cmd.Process.Pid)
	return append([]string{"--target", target, "--pid", "--mount", "--net", "--uts", "--"}, args...)
}

// KubeletDir is the kubelet's folder as the machine sees it, on the node
// /var/lib/kubelet: sockets in device-plugins and pod-resources can be used, and
// what is in volumes is there unless it is a mount of its own.
func (c *Cluster) KubeletDir() string { return c.path("lib/kubelet") }

// Path is what a file of the node's is called on this machine: also one in a mount
// that is the node's alone.
func (c *Cluster) Path(onNode string) string { return c.node.inside(onNode) }

// LogFile is where a component's log is.
func (c *Cluster) LogFile(component string) string { return c.path("log", component+".log") }

// NodeAddress is the node's; pods' addresses can be reached from the machine, too.
func (c *Cluster) NodeAddress() string { return c.net.node() }

// MachineAddress is that of this machine as the node and its pods see it.
func (c *Cluster) MachineAddress() string { return c.net.machine() }

// Broken is done when a component has ended that should run; its cause says
// which.
func (c *Cluster) Broken() context.Context { return c.broken }

// Stop ends all that runs in the cluster and removes it. The error also tells
// of a component that had ended before. Once more is no error.
func (c *Cluster) Stop() error {
	var err error
	c.stop.Do(func() {
		ended := context.Cause(c.broken)
		err = errors.Join(ended, c.remove())
	})
	return err
}
