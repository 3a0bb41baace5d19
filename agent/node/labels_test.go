package node

import (
	"testing"

	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
)

// An agent that has lost its state folder learns of the Node what it can't ask.
func TestLabelsAfterLoss(t *testing.T) {
	f := newLabelFile(t.TempDir())
	doc := &capabilitiesv1.Capabilities{
		Hypervisors: []*capabilitiesv1.HypervisorCapabilities{{Name: "emulation", State: capabilitiesv1.State_STATE_WORKS}}, DefaultHypervisor: "emulation",
		Unknown: []*capabilitiesv1.UnknownFact{{Fact: "host.ksm", Reason: "EIO"}},
	}
	const ksm = "kubevirt.io/ksm-enabled"
	carried := map[string]string{ksm: "true", "example.org/mine": "1", "kubevirt.io/realtime": "true"}
	got, err := f.After(doc, carried)
	if err != nil {
		t.Fatal(err)
	}
	if l := got.GetLabels(); l[ksm] != "true" || l["example.org/mine"] != "" || l["kubevirt.io/realtime"] != "" {
		t.Errorf("%v", l)
	}
	// What the agent remembers counts more.
	carried[ksm] = "false"
	if got, err = f.After(doc, carried); err != nil || got.GetLabels()[ksm] != "true" {
		t.Errorf("%v, %v", got.GetLabels(), err)
	}
}
