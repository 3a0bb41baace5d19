package configuration

import (
	"fmt"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// From reads a KubeVirt object; nil is a cluster without one. What it sets that has no effect
// is returned beside the configuration: a setting that can't be honoured is told, and stops
// nobody's VM.
func From(kv *kubevirtv1.KubeVirt) (Configuration, []Ignored) {
	c := Default()
	if kv == nil {
		return c, nil
	}
	faults := ignored(&kv.Spec)
	s := &kv.Spec.Configuration
	c.machines(s)
	c.processors(s, &faults)
	c.developer(s.DeveloperConfiguration, &faults)
	c.placement(&kv.Spec)
	c.network(s.Network, &faults)
	if s.SMBIOS != nil {
		c.SMBIOS = *s.SMBIOS
	}
	if s.EvictionStrategy != nil {
		c.EvictionStrategy = *s.EvictionStrategy
	}
	if ratio := s.AdditionalGuestMemoryOverheadRatio; ratio != nil {
		c.overhead(*ratio, &faults)
	}
	if o := s.VirtualMachineOptions; o != nil {
		c.NoSerialConsoleLog = o.DisableSerialConsoleLog != nil
	}
	return c, faults
}

// machines reads machine types; what is set for an architecture counts over what is set
// without one, which is amd64's.
func (c *Configuration) machines(s *kubevirtv1.KubeVirtConfiguration) {
	set := func(architecture, machine string, emulated []string) {
		if machine != "" {
			c.MachineType[architecture] = machine
		}
		if len(emulated) > 0 {
			c.EmulatedMachines[architecture] = emulated
		}
	}
	//lint:ignore SA1019 users' KubeVirt objects still have them
	set("amd64", s.MachineType, s.EmulatedMachines)
	a := s.ArchitectureConfiguration
	if a == nil {
		return
	}
	for architecture, settings := range map[string]*kubevirtv1.ArchitectureSettings{"amd64": a.AMD64, "arm64": a.ARM64} {
		if settings != nil {
			set(architecture, settings.MachineType, settings.EmulatedMachines)
		}
	}
	if a.DefaultArchitecture != "" {
		c.DefaultArchitecture = a.DefaultArchitecture
	}
}

func (c *Configuration) processors(s *kubevirtv1.KubeVirtConfiguration, faults *[]Ignored) {
	if s.CPUModel != "" {
		c.CPUModel = s.CPUModel
	}
	if s.CPURequest != nil {
		request := s.CPURequest.DeepCopy()
		c.CPURequest = &request
	}
	if selector := s.AutoCPULimitNamespaceLabelSelector; selector != nil {
		if _, err := metav1.LabelSelectorAsSelector(selector); err != nil {
			*faults = append(*faults, Ignored{"configuration.autoCPULimitNamespaceLabelSelector", err.Error()})
			return
		}
		c.LimitedNamespaces = selector.DeepCopy()
	}
}

func (c *Configuration) developer(d *kubevirtv1.DeveloperConfiguration, faults *[]Ignored) {
	if d == nil {
		return
	}
	c.UseEmulation = d.UseEmulation
	//lint:ignore SA1019 users' KubeVirt objects still have them
	c.NodeSelectors = maps.Clone(d.NodeSelectors)
	for _, n := range []struct {
		field     string
		value     int
		low, high int
		to        *int
	}{
		{"cpuAllocationRatio", d.CPUAllocationRatio, 1, 1 << 20, &c.CPUAllocationRatio},
		{"memoryOvercommit", d.MemoryOvercommit, 10, 1000, &c.MemoryOvercommit},
		{"pvcTolerateLessSpaceUpToPercent", d.PVCTolerateLessSpaceUpToPercent, 1, 99, &c.PVCTolerance},
	} {
		switch {
		case n.value == 0: // not set
		case n.value < n.low || n.value > n.high:
			*faults = append(*faults, Ignored{"configuration.developerConfiguration." + n.field,
				fmt.Sprintf("%d is not between %d and %d", n.value, n.low, n.high)})
		default:
			*n.to = n.value
		}
	}
	if d.MinimumReservePVCBytes > 0 {
		c.MinimumReserve = d.MinimumReservePVCBytes
	}
	c.FeatureGates = make(map[string]bool)
	for _, gate := range d.FeatureGates {
		c.FeatureGates[gate] = true
	}
	for _, gate := range d.DisabledFeatureGates {
		if c.FeatureGates[gate] {
			*faults = append(*faults, Ignored{"configuration.developerConfiguration.disabledFeatureGates", gate + " is in featureGates, too, and stays off"})
		}
		delete(c.FeatureGates, gate)
	}
}

func (c *Configuration) placement(s *kubevirtv1.KubeVirtSpec) {
	if s.Workloads != nil && s.Workloads.NodePlacement != nil {
		c.Placement = *s.Workloads.NodePlacement.DeepCopy()
	}
	c.RuntimeClass = s.Configuration.DefaultRuntimeClass
	c.ImagePullSecrets = s.ImagePullSecrets
	for _, policy := range []corev1.PullPolicy{s.ImagePullPolicy, s.Configuration.ImagePullPolicy} {
		if policy != "" {
			c.ImagePullPolicy = policy
		}
	}
}

func (c *Configuration) network(n *kubevirtv1.NetworkConfiguration, faults *[]Ignored) {
	if n == nil {
		return
	}
	switch n.DefaultNetworkInterface {
	case "":
	case "masquerade", "bridge":
		c.DefaultInterface = n.DefaultNetworkInterface
	default:
		*faults = append(*faults, Ignored{"configuration.network.defaultNetworkInterface",
			fmt.Sprintf("%q is neither masquerade nor bridge; masquerade is used", n.DefaultNetworkInterface)})
	}
	if n.PermitBridgeInterfaceOnPodNetwork != nil {
		c.PermitBridge = *n.PermitBridgeInterfaceOnPodNetwork
	}
}

// overhead reads a ratio, which KubeVirt has as text.
func (c *Configuration) overhead(text string, faults *[]Ignored) {
	ratio, err := strconv.ParseFloat(text, 64)
	if err != nil || !(ratio >= 1 && ratio <= 100) {
		*faults = append(*faults, Ignored{"configuration.additionalGuestMemoryOverheadRatio", fmt.Sprintf("%q is not a number from 1 to 100", text)})
		return
	}
	c.OverheadRatio = ratio
}
