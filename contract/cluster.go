package contract

// Labels of a VM's pod that KubeVirt has.
const (
	// LabelApp is LabelAppLauncher on every VM's pod.
	LabelApp         = "kubevirt.io"
	LabelAppLauncher = "virt-launcher"
	// LabelCreatedBy is the UID of the VirtualMachineInstance that a pod is of.
	LabelCreatedBy = "kubevirt.io/created-by"
	// LabelInstanceID is the instance's name, by which Services select it; shortened
	// where it is longer than a label may be.
	LabelInstanceID = "vmi.kubevirt.io/id"
	// LabelInstanceName is the instance's name as a host name.
	LabelInstanceName = "vm.kubevirt.io/name"
	// LabelNodeName is the node that a VMI is on.
	LabelNodeName = "kubevirt.io/nodeName"
)

// Labels of a pod through which a volume is attached to a VM's pod that runs.
const (
	// LabelAttachedTo is the UID of the VM's pod.
	LabelAttachedTo = "vmlet.io/attached-to"
	// LabelAppAttachment is the value of LabelApp: KubeVirt's on such pods of its own.
	LabelAppAttachment = "hotplug-disk"
)

// What a pod through which a volume is attached consists of: one container, which runs
// vmlet-shim attach and hands out a descriptor of AttachedFolder at the socket.
const (
	// VolumeAttachment is the pod's emptyDir volume with the socket AttachmentSocket, mounted at
	// VolumePath.
	VolumeAttachment = "vmlet-attachment"
	AttachmentSocket = "attachment.sock"
	// AttachedFolder is where the volume is mounted.
	AttachedFolder = "/var/run/vmlet/attached"
)

// ExitUnknown is the exit code of a shim that can't say whether its pod's VM runs: another one has it. It
// is the code that runtimes give a container of whose process they know nothing.
const ExitUnknown = 255

// TaintFormerMachineOff, with any value and effect, says of a Node that the machine which it was before is off. Of the one
// that it is now it says nothing, as the taint out-of-service would, on which Kubernetes acts, too.
const TaintFormerMachineOff = "vmlet.io/former-machine-off"

// Annotations of a VM's pod.
const (
	// AnnotationDomain is the instance's name.
	AnnotationDomain = "kubevirt.io/domain"
	// AnnotationMemoryOverhead is what the pod is given beside the guest's memory, in bytes.
	AnnotationMemoryOverhead = "kubevirt.io/memory-overhead-bytes"
	// AnnotationSpecification is the VM's specification, in JSON.
	AnnotationSpecification = "vmlet.io/specification"
	// AnnotationPreparation is what is made in the pod before the VM starts (package
	// launch), in JSON.
	AnnotationPreparation = "vmlet.io/preparation"
	// AnnotationOpensAttached, with any value, says that the shim of the pod's image restores a VM from a
	// volume that is attached to the pod.
	AnnotationOpensAttached = "vmlet.io/opens-attached-image"
	// AnnotationLabels has the keys, separated by commas, of the labels that the pod has of its
	// instance: one that the instance loses is taken from the pod as well.
	AnnotationLabels = "vmlet.io/labels"
)

// Annotations of a VirtualMachine, of its template and of a VirtualMachineInstance.
const (
	// AnnotationVMM is the VMM that is to run the VM: "auto", "qemu", "cloud-hypervisor".
	AnnotationVMM = "vmlet.io/vmm"
	// AnnotationHypervisor is the hypervisor that is to run it: "auto", "kvm", "mshv",
	// "emulation".
	AnnotationHypervisor = "vmlet.io/hypervisor"
	// AnnotationPauseProbes is "true" if the guest agent is not to be probed: KubeVirt's.
	AnnotationPauseProbes = "kubevirt.io/pause-guest-agent-probes"
	// AnnotationEvenCPUs, with any value, has the VMM's own CPUs make the pod's an even number:
	// KubeVirt's, of the KubeVirt object or an instance.
	AnnotationEvenCPUs = "alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity"
	// AnnotationDiskSize and a volume's name are how large the guest sees a container disk or
	// an ephemeral volume, a quantity: "vmlet.io/disk-size.root: 20Gi".
	AnnotationDiskSize = "vmlet.io/disk-size."
	// AnnotationVhostNet says whether the VM's pod asks for the node's /dev/vhost-net, "true" or
	// "false". Nodes without it don't get the VM then.
	AnnotationVhostNet = "vmlet.io/vhost-net"
	// AnnotationResumeStrategy is, on a VirtualMachine that is hibernated, the run strategy that
	// it had before, with which it is started again.
	AnnotationResumeStrategy = "vmlet.io/resume-run-strategy"
	// AnnotationLiveSize is on an instance whose CPU sockets or memory were changed while its guest
	// runs.
	AnnotationLiveSize = "vmlet.io/live-size"
	// AnnotationVMGeneration is the generation of the VirtualMachine that an instance was
	// made from.
	AnnotationVMGeneration = "kubevirt.io/vm-generation"
)

// Finalizers.
const (
	// FinalizerMachine keeps a VirtualMachine until its instance is gone, and an instance
	// until its VirtualMachine has seen how it ended.
	FinalizerMachine = "kubevirt.io/virtualMachineControllerFinalize"
	// FinalizerPod keeps a pod until its VM is known to have ended, also where somebody
	// deletes the pod by force.
	FinalizerPod = "vmlet.io/ended"
	// FinalizerInstance keeps an instance until its pods are gone.
	FinalizerInstance = "kubevirt.io/foregroundDeleteVirtualMachine"
)

// What a VM's pod consists of.
const (
	// PodPrefix begins the name of a VM's pod, which goes on with the instance's name, a '-' and a hash. It is KubeVirt's;
	// people and tools know VMs' pods by it.
	PodPrefix = "virt-launcher-"
	// ContainerCompute is the container that runs the VM.
	ContainerCompute = "compute"
	// SpecificationFolder has the files SpecificationFile and PreparationFile.
	SpecificationFolder = "/etc/vmlet-vm"
	SpecificationFile   = "vm.json"
	PreparationFile     = "preparation.json"
	// DisksFolder has one folder for each volume that is mounted.
	DisksFolder = "/var/run/vmlet/disks"
	// DevicesFolder has one device for each claim with volumeMode Block. It is in /dev, as the
	// agent grants access to a device by its file: the container's root is read-only, /dev is
	// not.
	DevicesFolder = "/dev/vmlet"
	// SocketsFolder has one socket for each file that another container hands out.
	SocketsFolder = "/var/run/vmlet/sockets"
	// KeysFolder has one folder for each Secret of public SSH keys, by the Secret's name.
	KeysFolder = "/var/run/vmlet/keys"
	// DriversFolder has, in an image that runs VMs, a program for each VMM that vmlet doesn't know, by the
	// VMM's name: its driver.
	DriversFolder = "/usr/libexec/vmlet/drivers"
	// MadeFolder is where overlays, empty disks and generated images are made.
	MadeFolder = "/var/run/vmlet/made"
	// HugePagesFolder is the hugetlbfs that the guest's memory is in, if it is to be in huge pages.
	HugePagesFolder = "/var/run/vmlet/hugepages"
	// HibernationFolder is the volume that the guest's memory is saved to and restored from.
	HibernationFolder = "/var/run/vmlet/hibernation"
	// ProgramsFolder has vmlet-shim, in containers of other images.
	ProgramsFolder = "/var/run/vmlet/programs"
)

// What a cluster's configuration says to nodes: a ConfigMap in vmlet's namespace, and its key.
const (
	ConfigMapCluster = "vmlet-cluster"
	ClusterFile      = "cluster.yaml"
)

// The agent's API on the network.
const (
	// NodeAPIPort is the name of the container port at which an agent serves it.
	NodeAPIPort = "node-api"
	// MetadataPodUID is the metadata of a call of it that names the UID of the pod whose VM is meant: a VM
	// of that name in another pod is NOT_FOUND. Without it any is meant.
	MetadataPodUID = "vmlet-pod-uid"
	// SignerName is that of the certificates by which vmlet's programs know each other.
	SignerName = "vmlet.io/programs"
	// AgentNameSuffix ends the host name in an agent's certificate; before it is the
	// name of the agent's node.
	AgentNameSuffix = ".agent.vmlet.io"
	// CommonNameController and CommonNameAPI are in the certificates of the programs that
	// may call agents, and the names of their ServiceAccounts and of vmlet-api's Service.
	CommonNameController = "vmlet-controller"
	CommonNameAPI        = "vmlet-api"
	// AccountAgent is the agent's ServiceAccount.
	AccountAgent = "vmlet-agent"
)
