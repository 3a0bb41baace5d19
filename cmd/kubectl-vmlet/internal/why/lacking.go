package why

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmlet/vmlet/contract"
)

// field of a VM that vmlet makes a label of: labels with a prefix are had by nodes that have what the rest names.
type field struct{ prefix, path, what, hint string }

func fields() []field {
	return []field{
		{contract.LabelCPUModel, "domain.cpu.model", "the CPU model", "host-model gives the guest its node's own processor"},
		{contract.LabelCPUFeature, "domain.cpu.features", "the CPU feature", "policy optional gives it where there is one"},
		{contract.LabelMachineType, "domain.machine.type", "the machine type", "q35 is the latest of a node"},
		{contract.LabelHyperV, "domain.features.hyperv", "the Hyper-V enlightenment", ""},
		{contract.LabelHostModelCPU, "domain.cpu.model", "as its own CPU model", ""},
	}
}

// maxNamed is how many of what nodes have instead are named.
const maxNamed = 12

// lacking says which labels that a pod wants of its node are on none, by the fields of the VM that ask for them.
// It says nothing where each is on some node: then no node has all of them, or room.
func lacking(pod *corev1.Pod, nodes []corev1.Node) (all []string) {
	for _, key := range slices.Sorted(maps.Keys(pod.Spec.NodeSelector)) {
		value := pod.Spec.NodeSelector[key]
		if slices.ContainsFunc(nodes, func(n corev1.Node) bool { return n.Labels[key] == value }) {
			continue
		}
		all = append(all, lack(key, value, nodes))
	}
	return all
}

func lack(key, value string, nodes []corev1.Node) string {
	for _, f := range fields() {
		name, is := strings.CutPrefix(key, f.prefix)
		if !is {
			continue
		}
		text := fmt.Sprintf("no node has %s %s, which %s asks for", f.what, name, f.path)
		if others := had(nodes, f.prefix); others != "" {
			text += "; nodes have " + others
		}
		if f.hint != "" {
			text += "; " + f.hint
		}
		return text
	}
	switch key {
	case contract.LabelSchedulable:
		return "no node runs VMs now: kubectl vmlet nodes says why"
	case contract.LabelCPUManager:
		return "no node's kubelet has the static CPU manager, which domain.cpu.dedicatedCpuPlacement asks for"
	case corev1.LabelArchStable:
		return fmt.Sprintf("no node has the architecture %s, which the VM's architecture asks for", value)
	}
	return fmt.Sprintf("no node has the label %s=%s, which the nodeSelector of the VM or of the KubeVirt object asks for", key, value)
}

// had names what nodes have of a kind, the first few in their order.
func had(nodes []corev1.Node, prefix string) string {
	names := make(map[string]bool)
	for _, n := range nodes {
		for key, value := range n.Labels {
			if name, is := strings.CutPrefix(key, prefix); is && value == "true" {
				names[name] = true
			}
		}
	}
	sorted := slices.Sorted(maps.Keys(names))
	text := strings.Join(sorted[:min(len(sorted), maxNamed)], ", ")
	if more := len(sorted) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
