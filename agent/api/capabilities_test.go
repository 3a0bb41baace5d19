package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// tellingVMM and tellingKVM say something to every question.
type tellingVMM struct{ *vmtest.VMM }

func (tellingVMM) Info(context.Context) (vmm.Info, error) {
	return vmm.Info{Name: "qemu", Version: "10.0.2", Capabilities: &capabilitiesv1.VmmCapabilities{
		MachineTypes: []*capabilitiesv1.MachineType{{Name: "pc-q35-10.0", Alias: "q35"}},
		Accelerators: []*capabilitiesv1.AcceleratorCapabilities{{
			Hypervisor: "kvm", Accelerator: "kvm", Usable: true, CpuModels: []*capabilitiesv1.CpuModel{{Name: "Skylake-Client", Usable: true}},
			CpuFeatures: []string{"aes"}, HostCpuModel: &capabilitiesv1.HostCpuModel{Name: "Haswell"},
		}},
	}}, nil
}

type tellingKVM struct{ vmtest.KVM }

func (tellingKVM) Discover(_ context.Context, into *capabilitiesv1.HypervisorCapabilities) []*capabilitiesv1.UnknownFact {
	into.HypervFeatures, into.Tsc = []string{"vpindex"}, &capabilitiesv1.TscInfo{FrequencyHz: 24}
	return nil
}

// serveCapabilities serves the CapabilitiesService of a machine whose KVM works and tells no
// more, and whose VMM doesn't answer.
func serveCapabilities(t *testing.T, stateDir string) capabilitiesv1.CapabilitiesServiceClient {
	t.Helper()
	return serveMachine(t, stateDir, vmtest.KVM{}, silentVMM{&vmtest.VMM{W: vmtest.New(t)}})
}

func serveMachine(t *testing.T, stateDir string, kvm hypervisor.Hypervisor, program vmm.Program) capabilitiesv1.CapabilitiesServiceClient {
	t.Helper()
	known, err := hypervisor.NewLocal(kvm, emulation.Emulation{})
	if err != nil {
		t.Fatal(err)
	}
	none := t.TempDir()
	n, err := node.New(capabilities.Sources{
		Roots: sysfs.Roots{Sys: none, Proc: none, Dev: none}, ThisMachine: true, Node: "made-up", Hypervisors: known,
		VMMs: []vmm.Program{program}, Log: slog.New(slog.DiscardHandler),
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

// TestCapabilitiesAnswered: each question has its own answer.
func TestCapabilitiesAnswered(t *testing.T) {
	c, ctx := serveMachine(t, t.TempDir(), tellingKVM{}, tellingVMM{&vmtest.VMM{W: vmtest.New(t)}}), t.Context()
	hyperv, err1 := c.GetHypervFeatures(ctx, &capabilitiesv1.GetHypervFeaturesRequest{})
	tsc, err2 := c.GetNodeTscInfo(ctx, &capabilitiesv1.GetNodeTscInfoRequest{})
	types, err3 := c.GetSupportedMachineTypes(ctx, &capabilitiesv1.GetSupportedMachineTypesRequest{})
	models, err4 := c.GetSupportedCpuModels(ctx, &capabilitiesv1.GetSupportedCpuModelsRequest{})
	features, err5 := c.GetSupportedCpuFeatures(ctx, &capabilitiesv1.GetSupportedCpuFeaturesRequest{})
	host, err6 := c.GetHostCpuModelInfo(ctx, &capabilitiesv1.GetHostCpuModelInfoRequest{})
	sev, err7 := c.GetNodeSevFeatures(ctx, &capabilitiesv1.GetNodeSevFeaturesRequest{})
	if err := errors.Join(err1, err2, err3, err4, err5, err6, err7); err != nil {
		t.Fatal(err)
	}
	got := []string{
		strings.Join(hyperv.GetFeatures(), " "), fmt.Sprint(tsc.GetTsc().GetFrequencyHz()), types.GetMachineTypes()[0].GetName(),
		models.GetModels()[0].GetName(), strings.Join(features.GetFeatures(), " "), host.GetModel().GetName(), fmt.Sprint(sev.GetFeatures().GetSev() != nil),
	}
	if want := []string{"vpindex", "24", "pc-q35-10.0", "Skylake-Client", "aes", "Haswell", "true"}; !slices.Equal(got, want) {
		t.Errorf("answers %q, want %q", got, want)
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
