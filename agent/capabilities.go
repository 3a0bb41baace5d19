package agent

import (
	"context"

	"github.com/vmlet/vmlet/agent/node"
	"github.com/vmlet/vmlet/capabilities"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
)

// capabilitiesAPI is the CapabilitiesService. Errors get their codes in the
// interceptors.
type capabilitiesAPI struct {
	capabilitiesv1.UnimplementedCapabilitiesServiceServer
	node *node.Node
}

// answers are those of the document as it is now.
func (s *capabilitiesAPI) answers(ctx context.Context) (capabilities.Answers, error) {
	doc, err := s.node.Keeper.Document(ctx)
	return capabilities.Answers{Document: doc}, err
}

func (s *capabilitiesAPI) GetCapabilities(ctx context.Context, r *capabilitiesv1.GetCapabilitiesRequest) (*capabilitiesv1.GetCapabilitiesResponse, error) {
	ask := s.node.Keeper.Document
	if r.GetRefresh() {
		ask = s.node.Keeper.Refresh
	}
	doc, err := ask(ctx)
	return &capabilitiesv1.GetCapabilitiesResponse{Capabilities: doc}, err
}

func (s *capabilitiesAPI) GetHypervFeatures(ctx context.Context, r *capabilitiesv1.GetHypervFeaturesRequest) (*capabilitiesv1.GetHypervFeaturesResponse, error) {
	a, err := s.answers(ctx)
	if err != nil {
		return nil, err
	}
	features, err := a.HypervFeatures(r.GetHypervisor())
	return &capabilitiesv1.GetHypervFeaturesResponse{Features: features}, err
}

func (s *capabilitiesAPI) GetSupportedMachineTypes(ctx context.Context, r *capabilitiesv1.GetSupportedMachineTypesRequest) (*capabilitiesv1.GetSupportedMachineTypesResponse, error) {
	a, err := s.answers(ctx)
	if err != nil {
		return nil, err
	}
	types, err := a.MachineTypes(r.GetVmm())
	return &capabilitiesv1.GetSupportedMachineTypesResponse{MachineTypes: types}, err
}

func (s *capabilitiesAPI) GetSupportedCpuModels(ctx context.Context, r *capabilitiesv1.GetSupportedCpuModelsRequest) (*capabilitiesv1.GetSupportedCpuModelsResponse, error) {
	a, err := s.answers(ctx)
	if err != nil {
		return nil, err
	}
	models, err := a.CPUModels(r.GetHypervisor(), r.GetVmm())
	return &capabilitiesv1.GetSupportedCpuModelsResponse{Models: models}, err
}

func (s *capabilitiesAPI) GetHostCpuModelInfo(ctx context.Context, r *capabilitiesv1.GetHostCpuModelInfoRequest) (*capabilitiesv1.GetHostCpuModelInfoResponse, error) {
	a, err := s.answers(ctx)
	if err != nil {
		return nil, err
	}
	model, err := a.HostCPUModel(r.GetHypervisor(), r.GetVmm())
	return &capabilitiesv1.GetHostCpuModelInfoResponse{Model: model}, err
}

func (s *capabilitiesAPI) GetSupportedCpuFeatures(ctx context.Context, r *capabilitiesv1.GetSupportedCpuFeaturesRequest) (*capabilitiesv1.GetSupportedCpuFeaturesResponse, error) {
	a, err := s.answers(ctx)
	if err != nil {
		return nil, err
	}
	features, err := a.CPUFeatures(r.GetHypervisor(), r.GetVmm())
	return &capabilitiesv1.GetSupportedCpuFeaturesResponse{Features: features}, err
}

func (s *capabilitiesAPI) GetNodeTscInfo(ctx context.Context, r *capabilitiesv1.GetNodeTscInfoRequest) (*capabilitiesv1.GetNodeTscInfoResponse, error) {
	a, err := s.answers(ctx)
	if err != nil {
		return nil, err
	}
	tsc, err := a.TSC(r.GetHypervisor())
	return &capabilitiesv1.GetNodeTscInfoResponse{Tsc: tsc}, err
}

func (s *capabilitiesAPI) GetNodeSevFeatures(ctx context.Context, _ *capabilitiesv1.GetNodeSevFeaturesRequest) (*capabilitiesv1.GetNodeSevFeaturesResponse, error) {
	a, err := s.answers(ctx)
	if err != nil {
		return nil, err
	}
	features, err := a.Confidential()
	return &capabilitiesv1.GetNodeSevFeaturesResponse{Features: features}, err
}

func (s *capabilitiesAPI) GetNodeLabels(ctx context.Context, _ *capabilitiesv1.GetNodeLabelsRequest) (*capabilitiesv1.GetNodeLabelsResponse, error) {
	doc, err := s.node.Keeper.Document(ctx)
	if err != nil {
		return nil, err
	}
	return s.node.Labels.Of(doc)
}
