// Package configuration reads the KubeVirt object, a cluster's configuration of VMs, into
// what vmlet can make use of. It is pure.
package configuration

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/capabilities/clusterwide"
)

// Configuration is a cluster's. It is not changed once it is made: share it freely.
type Configuration struct {
	// DefaultArchitecture is of VMs that name none: "amd64".
	DefaultArchitecture string
	// MachineType and EmulatedMachines (globs) by architecture.
	MachineType      map[string]string
	EmulatedMachines map[string][]string
	// CPUModel of VMs that name none: "host-model".
	CPUModel string
	// CPURequest of VMs that name none, if set; else a vCPU has 1000m / CPUAllocationRatio.
	CPURequest         *resource.Quantity
	CPUAllocationRatio int
	// EvenCPUs: pods with dedicated CPUs have an even number of them.
	EvenCPUs bool
	// LimitedNamespaces are those whose VMs' pods get CPU limits; nil: none.
	LimitedNamespaces *metav1.LabelSelector
	// MemoryOvercommit: a pod requests 100/MemoryOvercommit of the guest's memory.
	MemoryOvercommit int
	// OverheadRatio multiplies the pod's memory overhead.
	OverheadRatio float64
	// Hypervisor of VMs that name none, by its own name or "auto"; empty: none is configured.
	Hypervisor string
	// Nodes is what each node's agent reads of it.
	Nodes clusterwide.Configuration
	// Stack is the virtualisation stack.
	Stack Stack
	// UseEmulation: VMs run where there is no KVM.
	UseEmulation bool
	// NodeSelectors and Placement restrict VMs' pods.
	NodeSelectors map[string]string
	Placement     kubevirtv1.NodePlacement
	// RuntimeClass of VMs' pods, or empty.
	RuntimeClass     string
	ImagePullPolicy  corev1.PullPolicy
	ImagePullSecrets []corev1.LocalObjectReference
	// SMBIOS that guests see.
	SMBIOS kubevirtv1.SMBIOSConfiguration
	// EvictionStrategy of VMs that name none.
	EvictionStrategy kubevirtv1.EvictionStrategy
	// DefaultInterface of VMs that name none: "masquerade" or "bridge"; PermitBridge: on
	// the pod network.
	DefaultInterface string
	PermitBridge     bool
	// PVCTolerance in percent, and MinimumReserve in bytes, of disks made on claims.
	PVCTolerance   int
	MinimumReserve int64
	// NoSerialConsoleLog: consoles are not in pods' logs.
	NoSerialConsoleLog bool
	// FeatureGates that are on, of those that have an effect.
	FeatureGates map[string]bool
	// Hibernation of VMs that leave it open.
	Hibernation Hibernation
	// Support are resources of containers beside the guest's, by kind: SupportContainerDisk.
	Support map[string]corev1.ResourceRequirements
	// LiveUpdate: a guest is resized while it runs when its VM is, where that can be done.
	LiveUpdate bool
}

// Hibernation is how VMs hibernate, and start afterwards.
type Hibernation struct {
	// Mode is Save or SuspendToDisk; empty: each VM has to say.
	Mode string
	// WarningTimeoutSeconds after which an event reports a hibernation that has not ended; 0: each VM has
	// to say.
	WarningTimeoutSeconds int32
	// StorageClassName of claims that are made; nil: the cluster's default.
	StorageClassName *string
	// StartStrategy is Restore or Boot.
	StartStrategy kubevirtv1.StartStrategy
}

// Default is the configuration of a cluster whose KubeVirt object says nothing.
func Default() Configuration {
	return Configuration{
		DefaultArchitecture: "amd64",
		MachineType:         map[string]string{"amd64": "q35", "arm64": "virt"},
		EmulatedMachines:    map[string][]string{"amd64": {"q35*", "pc-q35*"}, "arm64": {"virt*"}},
		CPUModel:            "host-model",
		CPUAllocationRatio:  10,
		MemoryOvercommit:    100,
		OverheadRatio:       1,
		ImagePullPolicy:     corev1.PullIfNotPresent,
		EvictionStrategy:    "None",
		LiveUpdate:          true,
		DefaultInterface:    "masquerade",
		PermitBridge:        true,
		PVCTolerance:        10,
		MinimumReserve:      128 << 10,
		Hibernation:         Hibernation{Mode: kubevirtv1.HibernateSave, WarningTimeoutSeconds: 500, StartStrategy: kubevirtv1.StartRestore},
	}
}
