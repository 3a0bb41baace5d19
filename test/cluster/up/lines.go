package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/vmlet/vmlet/test/cluster"
)

// command is what a line on the terminal does to a node.
type command struct {
	verb, args, does string
	run              func(ctx context.Context, n *cluster.Node, args []string) error
}

func commands(c *cluster.Cluster) []command {
	return []command{
		{"cut", "NODE [api|nodes]", "cut it off from the control plane, from the other nodes, or from both", cut},
		{"mend", "NODE", "connect it again", then((*cluster.Node).Mend)},
		{"kill", "NODE", "cut its power: all of its processes end, guests included", at((*cluster.Node).Kill)},
		{"boot", "NODE", "start it again", then((*cluster.Node).Boot)},
		{"freeze", "NODE", "have all of its processes stand still", at((*cluster.Node).Freeze)},
		{"thaw", "NODE", "have them go on", at((*cluster.Node).Thaw)},
		{"cordon", "NODE", "have no new pods come to it", then((*cluster.Node).Cordon)},
		{"uncordon", "NODE", "let them come", then((*cluster.Node).Uncordon)},
		{"drain", "NODE", "have its pods leave it", then((*cluster.Node).Drain)},
		{"add", "", "add a node", func(ctx context.Context, _ *cluster.Node, _ []string) error {
			_, err := c.AddNode(ctx)
			return err
		}},
		{"remove", "NODE", "kill it and take it away, with its Node object", func(ctx context.Context, n *cluster.Node, _ []string) error {
			return c.RemoveNode(ctx, n)
		}},
	}
}

func then(do func(*cluster.Node, context.Context) error) func(context.Context, *cluster.Node, []string) error {
	return func(ctx context.Context, n *cluster.Node, _ []string) error { return do(n, ctx) }
}

func at(do func(*cluster.Node) error) func(context.Context, *cluster.Node, []string) error {
	return func(_ context.Context, n *cluster.Node, _ []string) error { return do(n) }
}

func cut(ctx context.Context, n *cluster.Node, args []string) error {
	from := cluster.ControlPlane | cluster.OtherNodes
	switch strings.Join(args, " ") {
	case "":
	case "api":
		from = cluster.ControlPlane
	case "nodes":
		from = cluster.OtherNodes
	default:
		return fmt.Errorf("cut from %s: say api or nodes, or nothing for both", strings.Join(args, " "))
	}
	return n.Cut(ctx, from)
}

// obey does what lines say, until there are no more.
func obey(ctx context.Context, c *cluster.Cluster, lines io.Reader) {
	for in := bufio.NewScanner(lines); in.Scan(); {
		words := strings.Fields(in.Text())
		if len(words) == 0 {
			continue
		}
		if err := do(ctx, c, words); err != nil {
			say("%s: %v", words[0], err)
			continue
		}
		say("%s: done", in.Text())
	}
}

func do(ctx context.Context, c *cluster.Cluster, words []string) error {
	for _, known := range commands(c) {
		if known.verb != words[0] {
			continue
		}
		if known.args == "" {
			return known.run(ctx, nil, nil)
		}
		if len(words) < 2 {
			return fmt.Errorf("of which node? %s", names(c))
		}
		for _, n := range c.Nodes() {
			if n.Name() == words[1] {
				return known.run(ctx, n, words[2:])
			}
		}
		return fmt.Errorf("there is no node %s: %s", words[1], names(c))
	}
	return fmt.Errorf("not a command; these are:\n%s", help(c))
}

func names(c *cluster.Cluster) string {
	var all []string
	for _, n := range c.Nodes() {
		all = append(all, n.Name())
	}
	return "there are " + strings.Join(all, ", ")
}

func help(c *cluster.Cluster) string {
	var text strings.Builder
	for _, known := range commands(c) {
		fmt.Fprintf(&text, "  %-22s %s\n", strings.TrimSpace(known.verb+" "+known.args), known.does)
	}
	return text.String()
}
