package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group and Version are those of all kinds in this package.
const (
	Group   = "instancetype.kubevirt.io"
	Version = "v1"
	// VersionBeta is served with the same schema, and is the only one that KubeVirt knows.
	VersionBeta = "v1beta1"
)

// The kinds, as matchers and ControllerRevisions name them.
const (
	KindInstancetype        = "VirtualMachineInstancetype"
	KindClusterInstancetype = "VirtualMachineClusterInstancetype"
	KindPreference          = "VirtualMachinePreference"
	KindClusterPreference   = "VirtualMachineClusterPreference"
)

// AddToScheme registers the package's kinds with a scheme. It always succeeds; the error is
// there because clients' builders of schemes ask for one.
func AddToScheme(s *runtime.Scheme) error {
	version := schema.GroupVersion{Group: Group, Version: Version}
	s.AddKnownTypes(version,
		&VirtualMachineInstancetype{}, &VirtualMachineInstancetypeList{},
		&VirtualMachineClusterInstancetype{}, &VirtualMachineClusterInstancetypeList{},
		&VirtualMachinePreference{}, &VirtualMachinePreferenceList{},
		&VirtualMachineClusterPreference{}, &VirtualMachineClusterPreferenceList{},
	)
	metav1.AddToGroupVersion(s, version)
	return nil
}
