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
	// AnnotationLabels has the keys, separated by commas, of the labels that the pod has of its
	// instance: one that the instance loses is taken from the pod as well.
	AnnotationLabels = "vmlet.io/labels"
)

// Annotations of a VirtualMachine's template and of a VirtualMachineInstance.
const (
	// AnnotationVMM is the VMM that is to run the VM: "auto", "qemu", "cloud-hypervisor".
	AnnotationVMM = "vmlet.io/vmm"
	// AnnotationHypervisor is the hypervisor that is to run it: "auto", "kvm", "mshv",
	// "emulation".
	AnnotationHypervisor = "vmlet.io/hypervisor"
	// AnnotationDiskSize and a volume's name are how large the guest sees a container disk or
	// an ephemeral volume, a quantity: "vmlet.io/disk-size.root: 20Gi".
	AnnotationDiskSize = "vmlet.io/disk-size."
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
	// MadeFolder is where overlays, empty disks and generated images are made.
	MadeFolder = "/var/run/vmlet/made"
	// ProgramsFolder has vmlet-shim, in containers of other images.
	ProgramsFolder = "/var/run/vmlet/programs"
)

// The agent's API on the network.
const (
	// NodeAPIPort is the name of the container port at which an agent serves it.
	NodeAPIPort = "node-api"
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
