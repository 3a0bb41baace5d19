package api

import (
	"context"

	"github.com/vmlet/vmlet/agent/node"
	"github.com/vmlet/vmlet/capabilities"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
)

// CapabilitiesService serves the API of that name: it answers from the node's capabilities
// document. Errors get their codes in the interceptors.
type CapabilitiesService struct {
	capabilitiesv1.UnimplementedCapabilitiesServiceServer
	Node *node.Node
}

// answers are those of the document as it is now.
func (s *CapabilitiesService) answers(ctx context.Context) (capabilities.Answers, error) {
	doc, err := s.Node.Keeper.Document(ctx)
	return capabilities.Answers{Document: doc}, err
}

// GetCapabilities returns the capabilities document; with refresh it asks the node again first.
func (s *CapabilitiesService) GetCapabilities(ctx context.Context, r *capabilitiesv1.GetCapabilitiesRequest) (*capabilitiesv1.GetCapabilitiesResponse, error) {
	ask := s.Node.Keeper.Document
	if r.GetRefresh() {
		ask = s.Node.Keeper.Refresh
	}
	doc, err := ask(ctx)
	return &capabilitiesv1.GetCapabilitiesResponse{Capabilities: doc}, err
}

// GetHypervFeatures returns the Hyper-V enlightenments that a hypervisor offers.
func (s *CapabilitiesService) GetHypervFeatures(ctx context.Context, r *capabilitiesv1.GetHypervFeaturesRequest) (*capabilitiesv1.GetHypervFeaturesResponse, error) {
	a, err := s.answers(ctx)
	if err != nil {
		return nil, err
	}
	features, err := a.HypervFeatures(r.GetHypervisor())
	return &capabilitiesv1.GetHypervFeaturesResponse{Features: features}, err
}

// GetSupportedMachineTypes returns the machine types of a VMM.
func (s *CapabilitiesService) GetSupportedMachineTypes(ctx context.Context, r *capabilitiesv1.GetSupportedMachineTypesRequest) (*capabilitiesv1.GetSupportedMachineTypesResponse, error) {
	a, err := s.answers(ctx)
	if err != nil {
		return nil, err
	}
	types, err := a.MachineTypes(r.GetVmm())
	return &capabilitiesv1.GetSupportedMachineTypesResponse{MachineTypes: types}, err
}

// GetSupportedCpuModels returns the CPU models of a VMM under a hypervisor.
func (s *CapabilitiesService) GetSupportedCpuModels(ctx context.Context, r *capabilitiesv1.GetSupportedCpuModelsRequest) (*capabilitiesv1.GetSupportedCpuModelsResponse, error) {
	a, err := s.answers(ctx)
	if err != nil {
		return nil, err
	}
	models, err := a.CPUModels(r.GetHypervisor(), r.GetVmm())
	return &capabilitiesv1.GetSupportedCpuModelsResponse{Models: models}, err
}

// GetHostCpuModelInfo returns the CPU model of the host.
func (s *CapabilitiesService) GetHostCpuModelInfo(ctx context.Context, r *capabilitiesv1.GetHostCpuModelInfoRequest) (*capabilitiesv1.GetHostCpuModelInfoResponse, error) {
	a, err := s.answers(ctx)
	if err != nil {
		return nil, err
	}
	model, err := a.HostCPUModel(r.GetHypervisor(), r.GetVmm())
	return &capabilitiesv1.GetHostCpuModelInfoResponse{Model: model}, err
}

// GetSupportedCpuFeatures returns the CPU features of a VMM under a hypervisor.
func (s *CapabilitiesService) GetSupportedCpuFeatures(ctx context.Context, r *capabilitiesv1.GetSupportedCpuFeaturesRequest) (*capabilitiesv1.GetSupportedCpuFeaturesResponse, error) {
	a, err := s.answers(ctx)
	if err != nil {
		return nil, err
	}
	features, err := a.CPUFeatures(r.GetHypervisor(), r.GetVmm())
	return &capabilitiesv1.GetSupportedCpuFeaturesResponse{Features: features}, err
}

// GetNodeTscInfo returns what a hypervisor does with the time stamp counter.
func (s *CapabilitiesService) GetNodeTscInfo(ctx context.Context, r *capabilitiesv1.GetNodeTscInfoRequest) (*capabilitiesv1.GetNodeTscInfoResponse, error) {
	a, err := s.answers(ctx)
	if err != nil {
		return nil, err
	}
	tsc, err := a.TSC(r.GetHypervisor())
	return &capabilitiesv1.GetNodeTscInfoResponse{Tsc: tsc}, err
}

// GetNodeSevFeatures returns the confidential computing that the node offers.
func (s *CapabilitiesService) GetNodeSevFeatures(ctx context.Context, _ *capabilitiesv1.GetNodeSevFeaturesRequest) (*capabilitiesv1.GetNodeSevFeaturesResponse, error) {
	a, err := s.answers(ctx)
	if err != nil {
		return nil, err
	}
	features, err := a.Confidential()
	return &capabilitiesv1.GetNodeSevFeaturesResponse{Features: features}, err
}

// GetNodeLabels returns the labels that follow from the document.
func (s *CapabilitiesService) GetNodeLabels(ctx context.Context, _ *capabilitiesv1.GetNodeLabelsRequest) (*capabilitiesv1.GetNodeLabelsResponse, error) {
	doc, err := s.Node.Keeper.Document(ctx)
	if err != nil {
		return nil, err
	}
	return s.Node.Labels.Of(doc)
}
