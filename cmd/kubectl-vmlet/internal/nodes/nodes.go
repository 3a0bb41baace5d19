// Package nodes says which nodes of a cluster can run VMs, with what, and why others can't:
// from the labels that the nodes' agents write, the nodes' conditions and the agents'
// Leases.
package nodes

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmlet/vmlet/cmd/kubectl-vmlet/internal/text"
	"github.com/vmlet/vmlet/contract"
)

// Node is a row of the table.
type Node struct {
	Name string
	// VMs says whether new VMs can start there: yes or no.
	VMs string
	// Hypervisors and VMMs that work there, the default one first.
	Hypervisors, VMMs string
	// MaxVCPUs is the most that one guest can have.
	MaxVCPUs string
	// Agent is when it last said that it lives.
	Agent string
	// Why VMs can't start there.
	Why []string
	// Can is what guests can ask for there: each field of a VM with the values that the node has.
	Can []Ability
}

// Ability is a field of a VM, and what it may be on a node.
type Ability struct {
	Field  string
	Values []string
}

// List reads the nodes, in the order of their names, and the agents' Leases in the namespace
// that vmlet is in. Leases that the user may not read are unknown, as the error says, which
// is no reason not to show the rest.
func List(ctx context.Context, from client.Reader, namespace string, now time.Time) (rows []Node, unread, err error) {
	var all corev1.NodeList
	if err := from.List(ctx, &all); err != nil {
		return nil, nil, fmt.Errorf("list nodes: %w", err)
	}
	var leases coordinationv1.LeaseList
	unread = from.List(ctx, &leases, client.InNamespace(namespace))
	for _, n := range all.Items {
		at := slices.IndexFunc(leases.Items, func(l coordinationv1.Lease) bool { return l.Name == n.Name })
		var lease *coordinationv1.Lease
		if at >= 0 {
			lease = &leases.Items[at]
		}
		rows = append(rows, describe(&n, lease, unread == nil, now))
	}
	slices.SortFunc(rows, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	return rows, unread, nil
}

// describe makes a row of a node and its agent's Lease, nil if there is none; known says
// whether Leases could be read.
func describe(n *corev1.Node, lease *coordinationv1.Lease, known bool, now time.Time) Node {
	row := Node{
		Name:        n.Name,
		Hypervisors: offered(n.Labels, contract.LabelHypervisorState, contract.LabelHypervisor),
		VMMs:        offered(n.Labels, contract.LabelVMMVersion, contract.LabelVMM),
		MaxVCPUs:    cmp.Or(n.Labels[contract.LabelMaxVCPUs], "-"),
		Agent:       "unknown",
	}
	if known {
		row.Agent = agent(lease, now)
	}
	row.Why = obstacles(n, row)
	for _, of := range []struct{ field, prefix string }{
		{"cpu.model", contract.LabelCPUModel}, {"host-model", contract.LabelHostModelCPU}, {"cpu.features", contract.LabelCPUFeature},
		{"machine.type", contract.LabelMachineType}, {"features.hyperv", contract.LabelHyperV},
	} {
		row.Can = append(row.Can, Ability{of.field, named(n.Labels, of.prefix)})
	}
	row.VMs = "yes"
	if len(row.Why) > 0 {
		row.VMs = "no"
	}
	return row
}

// offered are the names and values of the labels with a prefix, the default one first.
func offered(labels map[string]string, prefix, defaultKey string) string {
	var all []string
	for key, value := range labels {
		if name, is := strings.CutPrefix(key, prefix); is {
			all = append(all, name+" "+value)
		}
	}
	preferred := labels[defaultKey] + " "
	slices.SortFunc(all, func(a, b string) int {
		if first := strings.HasPrefix(a, preferred); first != strings.HasPrefix(b, preferred) {
			return map[bool]int{true: -1, false: 1}[first]
		}
		return strings.Compare(a, b)
	})
	return cmp.Or(strings.Join(all, ", "), "-")
}

// named is what labels with a prefix name, in its order.
func named(labels map[string]string, prefix string) (names []string) {
	for key, value := range labels {
		if name, is := strings.CutPrefix(key, prefix); is && value == "true" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// What agent says beside an age.
const (
	noAgent   = "none"
	agentLost = "lost"
)

// agent says when a node's agent was last heard.
func agent(lease *coordinationv1.Lease, now time.Time) string {
	if lease == nil || lease.Spec.RenewTime == nil {
		return noAgent
	}
	age := text.Age(now, lease.Spec.RenewTime.Time)
	if seconds := lease.Spec.LeaseDurationSeconds; seconds != nil && now.Sub(lease.Spec.RenewTime.Time) > time.Duration(*seconds)*time.Second {
		return agentLost + " " + age + " ago"
	}
	return "heard " + age + " ago"
}

// obstacles are why no VM can start on a node.
func obstacles(n *corev1.Node, row Node) (why []string) {
	switch schedulable, labelled := n.Labels[contract.LabelSchedulable]; {
	case !labelled:
		why = append(why, "no agent has labelled it: does vmlet's DaemonSet run there?")
	case schedulable != "true":
		why = append(why, "its hypervisor or VMM does not work: vmlet probe on the node says why")
	}
	if row.Agent == noAgent || strings.HasPrefix(row.Agent, agentLost) {
		why = append(why, "its agent is not heard")
	}
	if n.Spec.Unschedulable {
		why = append(why, "it is cordoned: kubectl uncordon "+n.Name)
	}
	for _, c := range n.Status.Conditions {
		switch {
		case c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue:
			why = append(why, "it is not ready: "+cmp.Or(c.Message, c.Reason, "its kubelet does not say why"))
		case c.Type != corev1.NodeReady && c.Status == corev1.ConditionTrue:
			why = append(why, string(c.Type)+": "+cmp.Or(c.Message, c.Reason))
		}
	}
	return why
}

// PrintAbilities writes what guests can ask for on each node.
func PrintAbilities(to io.Writer, rows []Node) error {
	for _, r := range rows {
		if _, err := fmt.Fprintf(to, "\nA guest on %s can have:\n", r.Name); err != nil {
			return err
		}
		for _, a := range r.Can {
			if _, err := fmt.Fprintf(to, "  %-16s%s\n", a.Field, text.Safe(cmp.Or(strings.Join(a.Values, " "), "-"))); err != nil {
				return err
			}
		}
	}
	return nil
}

// Print writes the table, and below it why VMs can't start on nodes.
func Print(to io.Writer, rows []Node) error {
	w := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "NODE\tVMS\tHYPERVISORS\tVMMS\tMAX VCPUS\tAGENT")
	for _, r := range rows {
		fmt.Fprintln(w, strings.Join([]string{r.Name, r.VMs, text.Safe(r.Hypervisors), text.Safe(r.VMMs), text.Safe(r.MaxVCPUs), r.Agent}, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, r := range rows {
		if len(r.Why) == 0 {
			continue
		}
		if _, err := fmt.Fprintf(to, "\nNo VM starts on %s:\n", r.Name); err != nil {
			return err
		}
		for _, why := range r.Why {
			if _, err := fmt.Fprintf(to, "  %s\n", text.Safe(why)); err != nil {
				return err
			}
		}
	}
	return nil
}
