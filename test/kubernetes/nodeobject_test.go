package kubernetes_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/test/cluster"
)

// testNodeObject: the Node has what a real probe says, and what others have put on
// it; the agent gives a sign of life.
func (d *deployment) testNodeObject(t *testing.T) {
	if d.hypervisor == "kvm" {
		d.allocatable(t, kvm, 1000, 1000)
	}
	var want map[string]string
	must(t, json.Unmarshal([]byte(d.mustVmlet(t, "labels", "-o", "json")), &want))
	if len(want) < 10 {
		t.Fatalf("the agent has the labels %v, want more", want)
	}
	var missing []string
	var labels map[string]string
	d.eventually(t, func() bool {
		must(t, json.Unmarshal([]byte(d.kubectl(t, "get", "node", cluster.NodeName, "-o", "jsonpath={.metadata.labels}")), &labels))
		missing = nil
		for k, v := range want {
			if got, there := labels[k]; !there || got != v {
				missing = append(missing, k+"="+v)
			}
		}
		return len(missing) == 0
	}, func() string { return "the Node lacks the labels " + strings.Join(missing, ", ") })
	d.labelled = time.Now()
	if labels[foreign] != "7" || labels["kubernetes.io/hostname"] != cluster.NodeName {
		t.Errorf("others' labels have changed: %v", labels)
	}
	if holder := d.kubectl(t, "-n", "vmlet", "get", "lease", cluster.NodeName, "-o", "jsonpath={.spec.holderIdentity}"); holder == "" {
		t.Error("the agent's Lease has no holder")
	}
}

// testSilence: whatever pods, VMs, the kubelet and the API server did since, and
// though there were other agents, nothing on the Node was to change: the agents
// have written their Lease, each has asked for its certificate, and nothing else.
func (d *deployment) testSilence(t *testing.T) {
	var leases int
	var others []cluster.Write
	look := func() bool {
		leases, others = 0, nil
		writes, err := d.Writes(func(w cluster.Write) bool { return w.User == agentUser && w.Time.After(d.labelled) })
		must(t, err)
		for _, w := range writes {
			switch {
			case w.Resource == "leases" && w.Name == cluster.NodeName:
				leases++
			case w.Resource == "certificatesigningrequests" && w.Verb == "create":
			default:
				others = append(others, w)
			}
		}
		return leases >= 2
	}
	d.eventually(t, look, func() string { return fmt.Sprintf("the agent has renewed its Lease %d times", leases) })
	for _, w := range others {
		t.Errorf("the agent has written: %v", w)
	}
}
