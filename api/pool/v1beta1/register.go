package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group, Version and Kind are those of VirtualMachinePool.
const (
	Group   = "pool.kubevirt.io"
	Version = "v1beta1"
	// VersionAlpha is served with the same schema.
	VersionAlpha = "v1alpha1"
	Kind         = "VirtualMachinePool"
)

// AddToScheme registers the package's kinds with a scheme. It always succeeds; the error is
// there because clients' builders of schemes ask for one.
func AddToScheme(s *runtime.Scheme) error {
	version := schema.GroupVersion{Group: Group, Version: Version}
	s.AddKnownTypes(version, &VirtualMachinePool{}, &VirtualMachinePoolList{})
	metav1.AddToGroupVersion(s, version)
	return nil
}
