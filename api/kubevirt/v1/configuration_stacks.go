package v1

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// VirtualizationProfile is a virtualisation stack: what its parts are called, the image that runs VMs,
// and webhooks of its own. What it leaves out is as without a profile.
type VirtualizationProfile struct {
	// Name of the profile.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`
	// The hypervisor and the VMM.
	// +optional
	VirtualizationComponents VirtualizationComponents `json:"virtualizationComponents,omitzero"`
	// VMs' pods.
	// +optional
	VirtLauncher VirtLauncherProfile `json:"virtLauncher,omitzero"`
	// Webhooks in place of vmlet's own.
	// +optional
	PluginWebhooks *PluginWebhooks `json:"pluginWebhooks,omitempty"`
}

// VirtualizationComponents are names of the stack's parts.
type VirtualizationComponents struct {
	// Device of the hypervisor that VMs run under which name none: /dev/kvm.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	HypervisorDevice string `json:"hypervisorDevice,omitempty"`
	// Regular expression for the names of vCPU threads. Its first group is the vCPU's number.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	VCPURegex string `json:"vCpuRegex,omitempty"`
	// Name of a daemon between vmlet and the VMM. There is none, and it has no effect.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	VMMDaemonProcess string `json:"vmmDaemonProcess,omitempty"`
	// Name of the program of the VMM that runs VMs which name none, or how it begins: qemu-system-x86.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	VMMProcessExecutable string `json:"vmmProcessExecutable,omitempty"`
	// How the names of threads begin that the hypervisor makes for interval timers. Empty is that it makes
	// none.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	PITPIDPrefix *string `json:"pitPidPrefix,omitempty"`
}

// VirtLauncherProfile is what VMs' pods have.
type VirtLauncherProfile struct {
	// Image that runs VMs.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	VirtLauncherImage string `json:"virtLauncherImage,omitempty"`
	// Capabilities that the container has beside none, without CAP_: NET_BIND_SERVICE.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	VirtLauncherCapabilities []corev1.Capability `json:"virtLauncherCapabilities,omitempty"`
	// Memory beside the guest's, in place of what vmlet reckons.
	// +optional
	VirtLauncherOverhead *resource.Quantity `json:"virtLauncherOverhead,omitempty"`
}

// PluginWebhooks are a stack's own webhooks, all served by one container.
type PluginWebhooks struct {
	// Image of the container. It serves HTTPS on port 8443.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	WebhookContainerImage string `json:"webhookContainerImage"`
	// Webhooks that refuse requests.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	ValidatingWebhooks []PluginWebhookSpecification `json:"validatingWebhooks,omitempty"`
	// Webhooks that change objects.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	MutatingWebhooks []PluginWebhookSpecification `json:"mutatingWebhooks,omitempty"`
}

// PluginWebhookSpecification is a webhook.
type PluginWebhookSpecification struct {
	// Name of the webhook.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// Requests that go to it, and no longer to vmlet's own webhooks.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Rules []admissionv1.RuleWithOperations `json:"rules"`
	// Path that is called: /validate-vmi.
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^/[A-Za-z0-9/_.-]*$`
	RestServicePath string `json:"restServicePath"`
	// What happens to a request while the plugin does not answer: Fail, the default, refuses it, Ignore
	// lets it pass.
	// +optional
	// +kubebuilder:validation:Enum=Fail;Ignore
	FailurePolicy *admissionv1.FailurePolicyType `json:"failurePolicy,omitempty"`
}
