package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group and Version are those of all kinds in this package.
const (
	Group   = "kubevirt.io"
	Version = "v1"
)

// AddToScheme registers the package's kinds with a scheme. It always succeeds; the error is
// there because clients' builders of schemes ask for one.
func AddToScheme(s *runtime.Scheme) error {
	version := schema.GroupVersion{Group: Group, Version: Version}
	s.AddKnownTypes(version,
		&VirtualMachine{}, &VirtualMachineList{},
		&VirtualMachineInstance{}, &VirtualMachineInstanceList{},
		&VirtualMachineInstanceReplicaSet{}, &VirtualMachineInstanceReplicaSetList{},
		&KubeVirt{}, &KubeVirtList{},
	)
	metav1.AddToGroupVersion(s, version)
	return nil
}
