package api

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/vmlet/vmlet/agent/node"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
	"github.com/vmlet/vmlet/capabilities"
	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/hypervisor/emulation"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/sysfs"
	"github.com/vmlet/vmlet/vmm"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// silentVMM can't be asked.
type silentVMM struct{ *vmtest.VMM }

func (silentVMM) Info(context.Context) (vmm.Info, error) {
	return vmm.Info{}, errors.New("it does not answer")
}

// serveCapabilities serves the CapabilitiesService of a machine whose KVM works
// and whose VMM doesn't answer.
func serveCapabilities(t *testing.T, stateDir string) capabilitiesv1.CapabilitiesServiceClient {
	t.Helper()
	known, err := hypervisor.New(vmtest.KVM{}, emulation.Emulation{})
	if err != nil {
		t.Fatal(err)
	}
	none := t.TempDir()
	n, err := node.New(capabilities.Sources{
		Roots: sysfs.Roots{Sys: none, Proc: none, Dev: none}, ThisMachine: true, Node: "made-up", Hypervisors: known,
		VMMs: []vmm.Program{silentVMM{&vmtest.VMM{W: vmtest.New(t)}}}, Log: slog.New(slog.DiscardHandler),
	}, stateDir)
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "s")
	l, err := Listen(socket, nil)
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer(PeerUsers(nil), slog.New(slog.DiscardHandler))
	capabilitiesv1.RegisterCapabilitiesServiceServer(server, &CapabilitiesService{Node: n})
	go server.Serve(l)
	t.Cleanup(server.Stop)
	conn, err := dialAPI(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return capabilitiesv1.NewCapabilitiesServiceClient(conn)
}

func TestCapabilitiesService(t *testing.T) {
	c, ctx := serveCapabilities(t, t.TempDir()), context.Background()
	for _, refresh := range []bool{false, true} {
		got, err := c.GetCapabilities(ctx, &capabilitiesv1.GetCapabilitiesRequest{Refresh: refresh})
		doc := got.GetCapabilities()
		if err != nil || doc.GetNode() != "made-up" || doc.GetDefaultHypervisor() != "kvm" || doc.GetHypervisors()[0].GetState() != capabilitiesv1.State_STATE_WORKS {
			t.Fatalf("%v, %v", doc, err)
		}
	}
	codeOf := func(_ any, err error) codes.Code { return status.Code(err) }
	for _, q := range []struct {
		question string
		got      codes.Code
		want     codes.Code
	}{
		{"Hyper-V", codeOf(c.GetHypervFeatures(ctx, &capabilitiesv1.GetHypervFeaturesRequest{})), codes.OK},
		{"Hyper-V of none", codeOf(c.GetHypervFeatures(ctx, &capabilitiesv1.GetHypervFeaturesRequest{Hypervisor: "xen"})), codes.NotFound},
		{"TSC", codeOf(c.GetNodeTscInfo(ctx, &capabilitiesv1.GetNodeTscInfoRequest{Hypervisor: "emulation"})), codes.OK},
		{"SEV", codeOf(c.GetNodeSevFeatures(ctx, &capabilitiesv1.GetNodeSevFeaturesRequest{})), codes.OK},
		{"machine types", codeOf(c.GetSupportedMachineTypes(ctx, &capabilitiesv1.GetSupportedMachineTypesRequest{})), codes.FailedPrecondition},
		{"machine types of none", codeOf(c.GetSupportedMachineTypes(ctx, &capabilitiesv1.GetSupportedMachineTypesRequest{Vmm: "x"})), codes.NotFound},
		{"models", codeOf(c.GetSupportedCpuModels(ctx, &capabilitiesv1.GetSupportedCpuModelsRequest{})), codes.FailedPrecondition},
		{"features", codeOf(c.GetSupportedCpuFeatures(ctx, &capabilitiesv1.GetSupportedCpuFeaturesRequest{Vmm: "x"})), codes.NotFound},
		{"host model", codeOf(c.GetHostCpuModelInfo(ctx, &capabilitiesv1.GetHostCpuModelInfoRequest{})), codes.FailedPrecondition},
	} {
		if q.got != q.want {
			t.Errorf("%s: %v, not %v", q.question, q.got, q.want)
		}
	}
}

// TestNodeLabels: labels of a fact that can't be asked now are as they were,
// also those of an earlier agent; a damaged file costs only that.
func TestNodeLabels(t *testing.T) {
	const model = "cpu-model.node.kubevirt.io/Skylake-Client"
	state := t.TempDir()
	path := filepath.Join(state, node.LabelsName)
	if err := os.WriteFile(path, []byte(`{"`+model+`": "true", "example.org/mine": "x"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	c := serveCapabilities(t, state)
	got, err := c.GetNodeLabels(context.Background(), &capabilitiesv1.GetNodeLabelsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if got.GetLabels()[model] != "true" || got.GetLabels()["example.org/mine"] != "" || len(got.GetUnknown()) == 0 {
		t.Errorf("%v", got)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var kept map[string]string
	if err := json.Unmarshal(content, &kept); err != nil || kept[model] != "true" || len(kept) != len(got.GetLabels()) {
		t.Errorf("kept: %v (%v)", kept, err)
	}
	if err := os.WriteFile(path, []byte(`{"cpu`), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err = c.GetNodeLabels(context.Background(), &capabilitiesv1.GetNodeLabelsRequest{})
	if err != nil || got.GetLabels()[model] != "" {
		t.Errorf("from a damaged file: %v (%v)", got, err)
	}
	if err := os.Remove(path); err == nil {
		err = os.Mkdir(path, 0o700)
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.GetNodeLabels(context.Background(), &capabilitiesv1.GetNodeLabelsRequest{}); err == nil {
		t.Error("labels of earlier that can't be read were given up")
	}
}
