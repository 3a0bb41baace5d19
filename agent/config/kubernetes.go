package config

import (
	"os"
	"path/filepath"

	"github.com/vmlet/vmlet/agent/kube"
)

// What the agent does with the node's labels.
const (
	// LabelsApply puts them on the Node object, by server-side apply.
	LabelsApply = "apply"
	// LabelsNFD writes them to a file that Node Feature Discovery reads.
	LabelsNFD = "nfd"
	// LabelsOff leaves them to anyone who asks (`vmlet labels`).
	LabelsOff = "off"
)

// DefaultNFDFile is in the folder that nfd-worker reads, unless it is configured otherwise.
const DefaultNFDFile = "/etc/kubernetes/node-feature-discovery/features.d/vmlet"

// KubernetesConfig is what the agent has to do with an API server.
type KubernetesConfig struct {
	// Enabled talks to the API server; default: in a pod, or with a kubeconfig.
	Enabled *bool `yaml:"enabled"`
	// Kubeconfig is the path of one; default: the pod's service account.
	Kubeconfig string `yaml:"kubeconfig"`
	// Node is this node's name; default: see kube.NodeName.
	Node string `yaml:"node"`
	// Namespace is the agent's own, where its Lease is; default: its pod's.
	Namespace string `yaml:"namespace"`
	// Labels is one of LabelsApply, the default where Enabled, LabelsNFD and
	// LabelsOff.
	Labels string `yaml:"labels"`
	// NFDFile is what LabelsNFD writes; default DefaultNFDFile.
	NFDFile string `yaml:"nfdFile"`
	// Heartbeat writes KubeVirt's annotation of that name, along with other
	// changes; default true.
	Heartbeat *bool `yaml:"heartbeat"`
	// TakeOver does what KubeVirt's virt-handler does even beside a running one;
	// default: its labels and resources are left to it.
	TakeOver bool `yaml:"takeOver"`
	// VirtHandlerNamespaces are those in which a virt-handler is believed to be
	// one: who may make pods elsewhere must not stop the agent. Default:
	// DefaultVirtHandlerNamespaces.
	VirtHandlerNamespaces []string `yaml:"virtHandlerNamespaces"`
}

// DefaultVirtHandlerNamespaces are where KubeVirt is installed: by itself, by its
// operator for clusters, on OpenShift and by Harvester.
func DefaultVirtHandlerNamespaces() []string {
	return []string{"kubevirt", "kubevirt-hyperconverged", "openshift-cnv", "harvester-system"}
}

func (c *KubernetesConfig) complete() {
	if c.Enabled == nil {
		_, pod := os.LookupEnv("KUBERNETES_SERVICE_HOST")
		pod = pod || c.Kubeconfig != ""
		c.Enabled = &pod
	}
	if c.Labels == "" && *c.Enabled {
		c.Labels = LabelsApply
	}
	if c.Labels == "" {
		c.Labels = LabelsOff
	}
	if c.NFDFile == "" {
		c.NFDFile = DefaultNFDFile
	}
	if c.Heartbeat == nil {
		yes := true
		c.Heartbeat = &yes
	}
	if c.VirtHandlerNamespaces == nil {
		c.VirtHandlerNamespaces = DefaultVirtHandlerNamespaces()
	}
}

// validate reports every fault.
func (c KubernetesConfig) validate(fault func(key, format string, args ...any)) {
	for _, p := range []struct{ key, path string }{{"kubeconfig", c.Kubeconfig}, {"nfdFile", c.NFDFile}} {
		if p.path != "" && (!filepath.IsAbs(p.path) || filepath.Clean(p.path) != p.path) {
			fault("kubernetes."+p.key, "%q is not an absolute, clean path", p.path)
		}
	}
	if filepath.Base(c.NFDFile)[0] == '.' {
		fault("kubernetes.nfdFile", "%q: NFD reads no file whose name begins with a dot", c.NFDFile)
	}
	for key, name := range map[string]string{"node": c.Node, "namespace": c.Namespace} {
		if err := kube.CheckName(name); name != "" && err != nil {
			fault("kubernetes."+key, "%v", err)
		}
	}
	switch c.Labels {
	case LabelsApply:
		if !*c.Enabled {
			fault("kubernetes.labels", "apply needs the API server: say kubernetes.enabled: true, or choose nfd or off")
		}
	case LabelsNFD, LabelsOff:
	default:
		fault("kubernetes.labels", "%q: choose apply, nfd or off", c.Labels)
	}
}
