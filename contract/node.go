package contract

// Labels of a Node that KubeVirt has. A name that ends in "/" is a prefix: the name of
// a feature, model or machine type follows.
const (
	LabelCPUFeature                = "cpu-feature.node.kubevirt.io/"
	LabelCPUModel                  = "cpu-model.node.kubevirt.io/"
	LabelCPUModelMigration         = "cpu-model-migration.node.kubevirt.io/"
	LabelCPUTimer                  = "cpu-timer.node.kubevirt.io/"
	LabelCPUVendor                 = "cpu-vendor.node.kubevirt.io/"
	LabelHostModelCPU              = "host-model-cpu.node.kubevirt.io/"
	LabelHostModelRequiredFeatures = "host-model-required-features.node.kubevirt.io/"
	LabelHyperV                    = "hyperv.node.kubevirt.io/"
	LabelMachineType               = "machine-type.node.kubevirt.io/"

	LabelKSMEnabled        = "kubevirt.io/ksm-enabled"
	LabelObsoleteHostModel = "node-labeller.kubevirt.io/obsolete-host-model"
	LabelRealtime          = "kubevirt.io/realtime"
	LabelS390PV            = "kubevirt.io/s390-pv"
	LabelSEV               = "kubevirt.io/sev"
	LabelSEVES             = "kubevirt.io/sev-es"
	LabelSEVSNP            = "kubevirt.io/sev-snp"
	LabelTDX               = "kubevirt.io/tdx"

	// LabelSchedulable is "true" where VMs can be started.
	LabelSchedulable = "kubevirt.io/schedulable"
	// LabelCPUManager is "true" where the kubelet gives pods CPUs of their own.
	LabelCPUManager = "kubevirt.io/cpumanager"
)

// Labels of a Node that vmlet adds. A name that ends in "/" or "-" is a prefix.
const (
	LabelHypervisor          = "node.vmlet.io/hypervisor"
	LabelHugePages           = "node.vmlet.io/hugepages-" // the size as Kubernetes writes it follows: 2Mi
	LabelIsolatedCPUs        = "node.vmlet.io/isolated-cpus"
	LabelLazyRestore         = "node.vmlet.io/lazy-restore"
	LabelMaxVCPUs            = "node.vmlet.io/max-vcpus"
	LabelNested              = "node.vmlet.io/nested"
	LabelNUMANodes           = "node.vmlet.io/numa-nodes"
	LabelNUMACPULessNodes    = "node.vmlet.io/numa-cpuless-nodes"
	LabelNUMAMemorylessNodes = "node.vmlet.io/numa-memoryless-nodes"
	LabelVMM                 = "node.vmlet.io/vmm"

	LabelHypervisorState = "hypervisor.node.vmlet.io/" // a hypervisor's name follows
	LabelVMMVersion      = "vmm.node.vmlet.io/"        // a VMM's name follows

	// What guests can have under the node's further hypervisors; KubeVirt's labels say nothing
	// of these: a hypervisor's name follows, a dot, and the name that KubeVirt's label would have.
	LabelFurtherCPUFeature = "cpu-feature.node.vmlet.io/"
	LabelFurtherCPUModel   = "cpu-model.node.vmlet.io/"
	LabelFurtherHyperV     = "hyperv.node.vmlet.io/"
)

// Annotations of a Node.
const (
	// AnnotationStack is what the VMMs in the image of the cluster's virtualisation stack say there
	// (vmm/described, Report).
	AnnotationStack = "node.vmlet.io/virtualization-stack"
	// AnnotationHeartbeat is when the Node was last written, RFC 3339.
	AnnotationHeartbeat = "kubevirt.io/heartbeat"
	// AnnotationSkipLabels is KubeVirt's: labels of the machine's abilities stay as
	// they are.
	AnnotationSkipLabels = "node-labeller.kubevirt.io/skip-node"
	// AnnotationSkip leaves all of the Node as it is.
	AnnotationSkip = "node.vmlet.io/skip"
	// AnnotationPaused leaves all of the Node as it is until the annotation is
	// removed. The agent sets it when another writer keeps changing back what the
	// agent writes.
	AnnotationPaused = "node.vmlet.io/paused"
)
