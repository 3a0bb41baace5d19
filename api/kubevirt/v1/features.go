package v1

// Features are features of processors and hypervisor that a guest sees.
type Features struct {
	// ACPI tables, which a guest shuts down and restarts by. On unless disabled.
	// +optional
	ACPI FeatureState `json:"acpi,omitzero"`
	// The interrupt controller of the processors.
	// +optional
	APIC *FeatureAPIC `json:"apic,omitempty"`
	// System management mode, which secure boot needs.
	// +optional
	SMM *FeatureState `json:"smm,omitempty"`
	// What Windows needs to know that it runs as a guest.
	// +optional
	Hyperv *FeatureHyperv `json:"hyperv,omitempty"`
	// All of what Windows can make use of that the node offers.
	// +optional
	HypervPassthrough *HypervPassthrough `json:"hypervPassthrough,omitempty"`
	// How KVM shows itself.
	// +optional
	KVM *FeatureKVM `json:"kvm,omitempty"`
	// Spinlocks that give the processor back to the host.
	// +optional
	PVSpinlock *FeatureState `json:"pvspinlock,omitempty"`
}

// FeatureState is a feature that is on or off.
type FeatureState struct {
	// Whether the feature is on. A feature that is named is on unless this is false.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
}

// FeatureAPIC is the interrupt controller of the processors.
type FeatureAPIC struct {
	FeatureState `json:",inline"`
	// Whether ends of interrupts are signalled through memory.
	// +optional
	EndOfInterrupt bool `json:"endOfInterrupt,omitempty"`
}

// FeatureKVM is how KVM shows itself to the guest.
type FeatureKVM struct {
	// Whether the guest doesn't see that it runs under KVM.
	// +optional
	Hidden bool `json:"hidden,omitempty"`
}

// FeatureHyperv is enlightenments of Hyper-V, which Windows uses.
type FeatureHyperv struct {
	// The guest doesn't take delayed timers for faults.
	// +optional
	Relaxed *FeatureState `json:"relaxed,omitempty"`
	// Interrupts are acknowledged through memory.
	// +optional
	VAPIC *FeatureState `json:"vapic,omitempty"`
	// The guest tells of locks that it waits for.
	// +optional
	Spinlocks *FeatureSpinlocks `json:"spinlocks,omitempty"`
	// Processors have an index that the guest can read.
	// +optional
	VPIndex *FeatureState `json:"vpindex,omitempty"`
	// Processors count the time that they run.
	// +optional
	Runtime *FeatureState `json:"runtime,omitempty"`
	// The synthetic interrupt controller. Needs vpindex.
	// +optional
	SyNIC *FeatureState `json:"synic,omitempty"`
	// Synthetic timers. Need synic.
	// +optional
	SyNICTimer *FeatureSyNICTimer `json:"synictimer,omitempty"`
	// The guest can reset itself through Hyper-V.
	// +optional
	Reset *FeatureState `json:"reset,omitempty"`
	// The hypervisor's name, as the guest sees it.
	// +optional
	VendorID *FeatureVendorID `json:"vendorid,omitempty"`
	// Frequencies of clock and interrupt controller that the guest can read.
	// +optional
	Frequencies *FeatureState `json:"frequencies,omitempty"`
	// The guest is notified if its clock's frequency changes, as after a migration.
	// +optional
	Reenlightenment *FeatureState `json:"reenlightenment,omitempty"`
	// The guest can have other processors' translations flushed. Needs vpindex.
	// +optional
	TLBFlush *FeatureTLBFlush `json:"tlbflush,omitempty"`
	// Processors can interrupt many others at once. Needs vpindex.
	// +optional
	IPI *FeatureState `json:"ipi,omitempty"`
	// Guests of the guest run faster on Intel's processors. Needs vapic and the CPU feature
	// vmx.
	// +optional
	EVMCS *FeatureState `json:"evmcs,omitempty"`
}

// HypervPassthrough is all enlightenments that the node offers.
type HypervPassthrough struct {
	// Whether the guest has them.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
}

// FeatureSpinlocks is how the guest tells of locks that it waits for.
type FeatureSpinlocks struct {
	FeatureState `json:",inline"`
	// Attempts after which the guest tells of a lock. Defaults to 4096.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	Spinlocks *int64 `json:"spinlocks,omitempty"`
}

// FeatureSyNICTimer is synthetic timers.
type FeatureSyNICTimer struct {
	FeatureState `json:",inline"`
	// Timers interrupt without a message.
	// +optional
	Direct *FeatureState `json:"direct,omitempty"`
}

// FeatureVendorID is the hypervisor's name, as the guest sees it.
type FeatureVendorID struct {
	FeatureState `json:",inline"`
	// The name, of 12 characters at most.
	// +optional
	VendorID string `json:"vendorid,omitempty"`
}

// FeatureTLBFlush is flushes of other processors' translations.
type FeatureTLBFlush struct {
	FeatureState `json:",inline"`
	// Guests of the guest can flush, too.
	// +optional
	Direct *FeatureState `json:"direct,omitempty"`
	// Ranges of addresses can be flushed.
	// +optional
	Extended *FeatureState `json:"extended,omitempty"`
}
