// Package convert turns a VirtualMachineInstance into what runs it in its pod: the VM's
// specification, and what the pod makes before the VM starts. It is pure. Package launcher
// makes the pod around both, and they agree on the places in the pod by this package's
// functions (places.go). It expects instances with their defaults, and leaves unset in the
// specification what the VMM's own defaults say anyway, so that `vmm: auto` has a choice.
// Start reading at Specification.
package convert

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/cluster/fields"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/launch"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
)

// Input is what a specification, and a pod, are made from. None of it is changed.
type Input struct {
	// Instance with its defaults.
	Instance      *kubevirtv1.VirtualMachineInstance
	Configuration configuration.Configuration
	// Claims by name: those that the instance's volumes name and that exist. Specification
	// takes a missing one for a claim with a file system, so that admission can convert an
	// instance before its claims exist.
	Claims map[string]*corev1.PersistentVolumeClaim
	// ImageNodes are those that can mount the claim which is attached for the guest to go on from; nil: any.
	ImageNodes *corev1.NodeSelector
	// LimitCPU and LimitMemory: pods of the namespace need limits, also those of instances that
	// give none.
	LimitCPU, LimitMemory bool
	// Offers are the nodes'.
	Offers Offers
	// Launcher is the container image of vmlet's own programs and of the VMMs.
	Launcher string
	// ClusterDomain is that of the cluster's DNS; empty: cluster.local.
	ClusterDomain string
	// admitted: admission asks, which refuses volumes that no disk is made of by their own rows.
	admitted bool
}

// defaultGrace is how long a guest has to shut down, in seconds, where the instance does not
// say (KubeVirt's default).
const defaultGrace = 30

// Specification returns the VM's specification, without a name as a VM in a pod has its
// pod's, and what the pod makes before the VM starts. The error joins a field.Error for each
// fault. Specification does not repeat what spec.Validate checks: see Faults.
func Specification(in Input) (*specv1.VirtualMachineSpec, *launch.Preparation, error) {
	vmi := in.Instance
	domain, path := &vmi.Spec.Domain, field.NewPath("spec", "domain")
	var faults field.ErrorList
	memory, fault := memory(domain.Memory, path.Child("memory", "guest"))
	if fault != nil {
		faults = append(faults, fault)
	}
	disks, preparation, more := disks(in)
	faults = append(faults, more...)
	networks, more := networks(in)
	faults = append(faults, more...)
	if err := faults.ToAggregate(); err != nil {
		return nil, nil, err
	}
	s := &specv1.VirtualMachineSpec{
		Hypervisor:      Hypervisor(in),
		Vmm:             vmi.Annotations[contract.AnnotationVMM],
		MachineType:     MachineType(in),
		Cpu:             cpu(domain.CPU),
		Memory:          memory,
		Numa:            numa(domain.CPU),
		Boot:            boot(domain.Firmware),
		Disks:           disks,
		Networks:        networks,
		Devices:         devices(in),
		StopGracePeriod: durationpb.New(Grace(vmi)),
		System:          system(in),
		Features:        features(domain.Features),
		Clock:           clock(domain.Clock),
	}
	if domain.RebootPolicy != nil && *domain.RebootPolicy == kubevirtv1.RebootTerminate {
		s.OnReboot = "end"
	}
	fields.Copy(&vmi.Spec, s)
	orderBoot(domain.Devices, s)
	return s, preparation, nil
}

// Grace is how long the guest has to shut down before it is killed; 0: it is killed at once.
func Grace(vmi *kubevirtv1.VirtualMachineInstance) time.Duration {
	if seconds := vmi.Spec.TerminationGracePeriodSeconds; seconds != nil {
		return time.Duration(*seconds) * time.Second
	}
	return defaultGrace * time.Second
}

// UUID is the machine's. An instance that has none has its own UID, which is a UUID, too.
func UUID(vmi *kubevirtv1.VirtualMachineInstance) string {
	if f := vmi.Spec.Domain.Firmware; f != nil && f.UUID != "" {
		return string(f.UUID)
	}
	return string(vmi.UID)
}

// Architecture is the guest's, by Go's name for it.
func Architecture(in Input) string {
	if a := in.Instance.Spec.Architecture; a != "" {
		return a
	}
	return in.Configuration.DefaultArchitecture
}
