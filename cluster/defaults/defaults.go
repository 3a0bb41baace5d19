// Package defaults fills in what VirtualMachines and VirtualMachineInstances leave open.
// What is set is never changed, and what is filled in once stays as it is: to fill in
// defaults a second time changes nothing.
//
// A VirtualMachine's spec is its user's: it is given an identity when it is created, and
// nothing else. All that a VM leaves open is filled into the instance of each run, so that
// the cluster's configuration counts from the next start on. Start reading at Instance.
package defaults

import (
	"slices"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/contract"
	hypervisors "github.com/vmlet/vmlet/hypervisor/standard"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	vmms "github.com/vmlet/vmlet/vmm/standard"
)

// Machine gives a VirtualMachine that is being created, which has no UID yet, its finalizer,
// KubeVirt's annotations, and a random UUID and serial number for its firmware. It leaves others
// alone: a new UUID would be another machine to the guest.
func Machine(vm *kubevirtv1.VirtualMachine, _ configuration.Configuration) {
	if vm.UID != "" || vm.DeletionTimestamp != nil {
		return
	}
	created(&vm.ObjectMeta, contract.FinalizerMachine)
	if vm.Spec.Template == nil {
		return // refused by its definition
	}
	firmware := made(&vm.Spec.Template.Spec.Domain.Firmware)
	if firmware.UUID == "" {
		firmware.UUID = types.UID(uuid.NewString())
	}
	if firmware.Serial == "" {
		firmware.Serial = uuid.NewString()
	}
}

// KeepIdentity gives a VirtualMachine that is updated the UUID and serial number that it had, where
// the new object has none: who replaces it by his own manifest has none of them, and does not
// want another machine.
func KeepIdentity(vm, old *kubevirtv1.VirtualMachine) {
	if vm.Spec.Template == nil || old.Spec.Template == nil || old.Spec.Template.Spec.Domain.Firmware == nil {
		return
	}
	had := old.Spec.Template.Spec.Domain.Firmware
	if had.UUID == "" && had.Serial == "" {
		return
	}
	firmware := made(&vm.Spec.Template.Spec.Domain.Firmware)
	fill(&firmware.UUID, had.UUID)
	fill(&firmware.Serial, had.Serial)
}

// Instance fills in what an instance leaves open: the configuration's values first, then those of its
// hypervisor on its architecture, its architecture, its hypervisor, and of all instances. What depends
// on other fields comes last. One that is being created gets its
// finalizer and KubeVirt's annotations.
func Instance(vmi *kubevirtv1.VirtualMachineInstance, c configuration.Configuration) {
	NewInstance(vmi, c)
	s := &vmi.Spec
	fill(&s.Architecture, c.DefaultArchitecture)
	v := valuesOf(vmi, c)
	if v.eviction == kubevirtv1.EvictionHibernate && metav1.GetControllerOf(vmi) == nil {
		v.eviction = kubevirtv1.EvictionNone // without a VirtualMachine nobody would start it again
	}
	if s.EvictionStrategy == nil {
		s.EvictionStrategy = &v.eviction
	}
	fill(&made(&s.Domain.Machine).Type, v.machine)
	memory(&s.Domain)
	processors(&s.Domain, c)
	fill(&s.Domain.CPU.Model, v.cpuModel)
	features(s.Domain.Features, s.Domain.CPU)
	timers(s.Domain.Clock)
	firmware(&s.Domain, v)
	images(s)
	Implied(s)
	network(s, v)
	disks(&s.Domain.Devices, v)
	otherDevices(&s.Domain.Devices)
}

// NewInstance gives an instance that is being created its finalizer and KubeVirt's annotations, and notes
// what the cluster chooses for it, so that it stays as it is when the cluster chooses otherwise.
func NewInstance(vmi *kubevirtv1.VirtualMachineInstance, c configuration.Configuration) {
	if vmi.UID != "" || vmi.DeletionTimestamp != nil {
		return
	}
	created(&vmi.ObjectMeta, contract.FinalizerInstance)
	note(vmi, contract.AnnotationHypervisor, c.Hypervisor)
	note(vmi, contract.AnnotationVMM, c.Stack.VMM)
}

// created gives a new object its finalizer, and notes by which version of the API it was seen.
func created(meta *metav1.ObjectMeta, finalizer string) {
	if !slices.Contains(meta.Finalizers, finalizer) {
		meta.Finalizers = append(meta.Finalizers, finalizer)
	}
	if meta.Annotations == nil {
		meta.Annotations = make(map[string]string)
	}
	meta.Annotations[contract.AnnotationLatestVersion] = kubevirtv1.Version
	meta.Annotations[contract.AnnotationStorageVersion] = kubevirtv1.Version
}

// note has an annotation say what the instance does not.
func note(vmi *kubevirtv1.VirtualMachineInstance, key, value string) {
	if value != "" && vmi.Annotations[key] == "" {
		vmi.Annotations[key] = value
	}
}

// values are what instances leave open.
type values struct {
	machine  string
	cpuModel string
	// diskBus is empty where it stays open.
	diskBus kubevirtv1.DiskBus
	// uefi: the architecture has no BIOS.
	uefi bool
	// binding of interfaces that name none.
	binding  string
	eviction kubevirtv1.EvictionStrategy
}

// The CPU models that stand for the node's processor.
const (
	hostModel       = "host-model"
	hostPassthrough = "host-passthrough"
)

// valuesOf are those of an instance: what a node would fill in under its hypervisor on its
// architecture, by the same layers, then what is KubeVirt's, and the configuration's over both.
func valuesOf(vmi *kubevirtv1.VirtualMachineInstance, c configuration.Configuration) values {
	v := values{cpuModel: hostModel, binding: "masquerade", eviction: kubevirtv1.EvictionNone}
	arch := vmi.Spec.Architecture
	v.onNode(convert.Hypervisor(convert.Input{Instance: vmi, Configuration: c}), arch)
	v.diskBus = convert.DiskBus(vmi, c, arch)
	if c.Stack.Mutates() {
		v.diskBus = "" // the VMM may yet be chosen: conversion fills it in
	}
	lay(&v.machine, c.MachineType[arch])
	lay(&v.cpuModel, c.CPUModel)
	lay(&v.binding, c.DefaultInterface)
	lay(&v.eviction, c.EvictionStrategy)
	if arch == spec.ArchARM64 && v.cpuModel == hostModel {
		v.cpuModel = hostPassthrough // there are no named models that are near to a node's
	}
	return v
}

// onNode lays over the values what a node fills into an empty specification, with the VMM that it prefers,
// which has all that an instance can name.
func (v *values) onNode(hypervisor, arch string) {
	if arch != spec.ArchAMD64 && arch != spec.ArchARM64 {
		return // refused by validation
	}
	preferred := vmms.Registry().All()[0]
	target := spec.Target{Hypervisor: hypervisor, VMM: preferred.Name(), Arch: arch, Defaults: vmm.DefaultsOf(preferred, arch)}
	filled := spec.Default(&specv1.VirtualMachineSpec{}, target, hypervisors.Registry().Layers())
	v.machine = filled.GetMachineType()
	v.uefi = filled.GetBoot().GetFirmware() == spec.FirmwareUEFI
	// Those two are the node's own processor, or all that can be emulated: host-model.
	if model := filled.GetCpu().GetModel(); model != "host" && model != "max" {
		lay(&v.cpuModel, model)
	}
}

// lay sets what is under it to a value, if there is one.
func lay[T ~string](under *T, value T) {
	if value != "" {
		*under = value
	}
}

// fill sets what is not set.
func fill[T ~string](field *T, value T) {
	if *field == "" {
		*field = value
	}
}

// made returns what a field points to, which is made where there is nothing.
func made[T any](field **T) *T {
	if *field == nil {
		*field = new(T)
	}
	return *field
}

// on turns a feature on, or whatever else is a switch, unless it says otherwise.
func on(field **bool) {
	if *field == nil {
		yes := true
		*field = &yes
	}
}
