package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// controlSocket is where the program that runs a cluster serves others that use it, in its folder.
const controlSocket = "control.sock"

// description is what a program that joins a cluster is told first.
type description struct {
	Network int
	Options Options // without Images
	Nodes   []describedNode
}

// describedNode is one that is on.
type describedNode struct{ Number, PID int }

// order is one of its members, for a component of a node. One is answered after the other, by an error's text or
// nothing.
type order struct {
	Node  int
	Start *startOrder `json:",omitempty"`
	Stop  *stopOrder  `json:",omitempty"`
}

type startOrder struct {
	Name, Log string
	Args      []string
}

type stopOrder struct {
	Name  string
	Grace time.Duration
}

// Share lets other programs [Join] the cluster for as long as it runs.
func (c *Cluster) Share() error {
	l, err := net.Listen("unix", c.path(controlSocket))
	if err != nil {
		return fmt.Errorf("sharing the cluster: %w", err)
	}
	context.AfterFunc(c.broken, func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go c.serve(conn)
		}
	}()
	return nil
}

// serve obeys one program, until it or the cluster ends.
func (c *Cluster) serve(conn net.Conn) {
	defer conn.Close()
	defer context.AfterFunc(c.broken, func() { _ = conn.Close() })()
	in, out := json.NewDecoder(conn), json.NewEncoder(conn)
	if out.Encode(c.describe()) != nil {
		return
	}
	for {
		var o order
		if in.Decode(&o) != nil {
			return
		}
		answer := ""
		if err := c.obey(o); err != nil {
			answer = err.Error()
		}
		if out.Encode(answer) != nil {
			return
		}
	}
}

func (c *Cluster) describe() description {
	d := description{Network: c.net.number, Options: c.options}
	d.Options.Images = nil
	for _, n := range c.Nodes() {
		if p, err := n.running(); err == nil {
			d.Nodes = append(d.Nodes, describedNode{n.number, p.pid()})
		}
	}
	return d
}

func (c *Cluster) obey(o order) error {
	nodes := c.Nodes()
	i := slices.IndexFunc(nodes, func(n *Node) bool { return n.number == o.Node })
	if i < 0 {
		return fmt.Errorf("the cluster has no node %d", o.Node)
	}
	p, err := nodes[i].running()
	switch {
	case err != nil:
		return err
	case o.Start != nil:
		return p.start(o.Start.Name, o.Start.Log, o.Start.Args...)
	case o.Stop != nil:
		return p.stop(o.Stop.Name, o.Stop.Grace)
	}
	return errors.New("an order has neither start nor stop")
}

// Shared returns the kubeconfig of the cluster that another program shares: the one that KUBECONFIG names, or
// else the only one below the folder for temporary files. It is empty if there is none.
func Shared() (kubeconfig string, err error) {
	if named := os.Getenv("KUBECONFIG"); named != "" && isShared(named) {
		return named, nil
	}
	all, err := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*", "kubeconfig"))
	if err != nil {
		return "", err
	}
	all = slices.DeleteFunc(all, func(path string) bool { return !isShared(path) })
	switch len(all) {
	case 0:
		return "", nil
	case 1:
		return all[0], nil
	}
	return "", fmt.Errorf("several clusters run: set KUBECONFIG to one of %s", strings.Join(all, ", "))
}

func isShared(kubeconfig string) bool {
	conn, err := net.Dial("unix", filepath.Join(filepath.Dir(kubeconfig), controlSocket))
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// Join returns a cluster that another program runs and shares, by its kubeconfig. Its components can be stopped
// and started, and its nodes cut off, frozen and drained; nodes come, go, and lose their power only by
// the program that runs it. Stop ends the use of it, and nothing else.
func Join(kubeconfig string, logf func(string, ...any)) (*Cluster, error) {
	dir := filepath.Dir(kubeconfig)
	conn, err := net.Dial("unix", filepath.Join(dir, controlSocket))
	if err != nil {
		return nil, fmt.Errorf("joining the cluster of %s: %w", kubeconfig, err)
	}
	found, err := findPrograms()
	var d description
	owner := &owner{conn: conn, in: json.NewDecoder(conn), out: json.NewEncoder(conn)}
	if err == nil {
		err = owner.in.Decode(&d)
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("joining the cluster of %s: %w", kubeconfig, err)
	}
	c := &Cluster{name: filepath.Base(dir), options: d.Options, programs: found, logf: logf, owner: owner, net: network{d.Network}}
	c.Node = &Node{cluster: c, number: 1, dir: dir}
	for _, on := range d.Nodes {
		n := c.Node
		if on.Number > 1 {
			n = c.newNode(on.Number)
		}
		n.init = othersProcess{owner, on.Number, on.PID}
		c.nodes = append(c.nodes, n)
	}
	if d.Options.Storage {
		found[LoopDriver] = c.path(loopDriverProgram)
	}
	c.broken, c.fail = context.WithCancelCause(context.Background())
	owner.ended = func() { c.fail(errors.New("the program that runs the cluster has ended, or the cluster has broken")) }
	return c, nil
}

// joined says why something can't be done to a cluster that another program runs.
func (c *Cluster) joined() error {
	if c.owner != nil {
		return errors.New("another program runs the cluster: nodes come, go, and lose their power by that alone")
	}
	return nil
}

// owner is the program that runs a cluster which this one has joined.
type owner struct {
	conn  net.Conn
	one   sync.Mutex // one order at a time
	in    *json.Decoder
	out   *json.Encoder
	ended func()
}

func (o *owner) order(what order) error {
	o.one.Lock()
	defer o.one.Unlock()
	var answer string
	if err := errors.Join(o.out.Encode(what), o.in.Decode(&answer)); err != nil {
		o.ended()
		return fmt.Errorf("asking the program that runs the cluster: %w", err)
	}
	if answer != "" {
		return errors.New(answer)
	}
	return nil
}

// othersProcess is a node's first process which another program has started.
type othersProcess struct {
	*owner
	node, id int
}

func (p othersProcess) pid() int { return p.id }

func (p othersProcess) start(name, log string, args ...string) error {
	return p.order(order{Node: p.node, Start: &startOrder{name, log, args}})
}

func (p othersProcess) stop(name string, grace time.Duration) error {
	return p.order(order{Node: p.node, Stop: &stopOrder{name, grace}})
}
