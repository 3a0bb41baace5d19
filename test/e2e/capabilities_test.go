package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/vmlet/vmlet/capabilities"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
)

// TestNodeCapabilities: the agent and `vmlet probe` say the same of the machine,
// and a VMM that is replaced is noticed though nobody asks.
func TestNodeCapabilities(t *testing.T) {
	all := qemusOrSkip(t)
	link := t.TempDir() + "/qemu"
	if err := os.Symlink(all[0].binary, link); err != nil {
		t.Fatal(err)
	}
	n := newNode(t, nodeOptions{qemu: qemu{"link", link}, config: "obsoleteCPUModels: {Westmere: true}\n"})
	service := capabilitiesv1.NewCapabilitiesServiceClient(n.conn)
	ctx, cancel := n.patient()
	defer cancel()

	got, err := service.GetCapabilities(ctx, &capabilitiesv1.GetCapabilitiesRequest{})
	n.must(err)
	doc := got.GetCapabilities()
	if v := doc.GetVmms()[0]; v.GetState() != capabilitiesv1.State_STATE_WORKS || v.GetVersion() == "" || len(v.GetMachineTypes()) == 0 {
		t.Errorf("the VMM is %q: %s", v.GetState(), v.GetReason())
	}
	if out := n.probe(); !capabilities.Equal(doc, out) {
		t.Error("vmlet probe says something else than the agent")
	}
	models, err := service.GetSupportedCpuModels(ctx, &capabilitiesv1.GetSupportedCpuModelsRequest{Hypervisor: "emulation"})
	n.must(err)
	for _, m := range models.GetModels() {
		if m.GetName() == "Westmere" {
			t.Error("an obsolete model is offered")
		}
	}
	if _, err := service.GetSupportedCpuModels(ctx, &capabilitiesv1.GetSupportedCpuModelsRequest{Hypervisor: "xen"}); status.Code(err) != codes.NotFound {
		t.Errorf("of a hypervisor that isn't there: %v", err)
	}
	labels, err := service.GetNodeLabels(ctx, &capabilitiesv1.GetNodeLabelsRequest{})
	n.must(err)
	if len(labels.GetLabels()) == 0 {
		t.Error("no labels")
	}

	n.must(os.Remove(link))
	n.waitForLog(`msg="no VM can be started with this VMM" vmm=qemu`)
	n.must(os.Symlink(all[len(all)-1].binary, link+".new"))
	n.must(os.Rename(link+".new", link))
	if len(all) > 1 {
		n.waitForLog("version=10.")
	}
}

// probe is the document of `vmlet probe`, which shares the agent's folder.
func (n *node) probe() *capabilitiesv1.Capabilities {
	n.t.Helper()
	config, err := os.ReadFile(n.path("config.yaml"))
	n.must(err)
	n.must(os.WriteFile(n.path("probe.yaml"), append(config, "stateDir: "+n.path("state")+"\n"...), 0o600))
	out, err := n.command("probe", "-o", "json", "--config", n.path("probe.yaml")).Output()
	n.must(err)
	if !json.Valid(out) {
		n.must(errors.New("vmlet probe -o json: not JSON"))
	}
	doc := new(capabilitiesv1.Capabilities)
	n.must(protojson.Unmarshal(out, doc))
	return doc
}

// waitForLog waits until the agent has logged this.
func (n *node) waitForLog(text string) {
	n.t.Helper()
	ctx, cancel := n.patient()
	defer cancel()
	for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		log, err := os.ReadFile(n.path("agent.log"))
		n.must(err)
		if strings.Contains(string(log), text) {
			return
		}
	}
	n.t.Fatalf("the agent didn't log %q", text)
}
