package configuration

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
)

// From reads a KubeVirt object; nil is a cluster without one. What it sets that has no effect
// is returned beside the configuration: a setting that can't be honoured is reported, and stops
// nobody's VM.
func From(kv *kubevirtv1.KubeVirt) (Configuration, []Ignored) {
	c := Default()
	if kv == nil {
		return c, nil
	}
	faults := ignored(&kv.Spec)
	s := &kv.Spec.Configuration
	_, c.EvenCPUs = kv.Annotations[contract.AnnotationEvenCPUs]
	c.machines(s, &faults)
	c.processors(s, &faults)
	c.developer(s.DeveloperConfiguration, &faults)
	c.hypervisor(s, &faults)
	c.nodes(s, &faults)
	c.stack(s.VirtualizationProfile, kv.Status.VirtualizationStack, &faults)
	c.placement(&kv.Spec)
	c.network(s.Network, &faults)
	if s.SMBIOS != nil {
		c.SMBIOS = *s.SMBIOS
	}
	if s.EvictionStrategy != nil {
		c.EvictionStrategy = *s.EvictionStrategy
	}
	if s.VMRolloutStrategy != nil {
		c.LiveUpdate = *s.VMRolloutStrategy == kubevirtv1.RolloutLiveUpdate
	}
	if ratio := s.AdditionalGuestMemoryOverheadRatio; ratio != nil {
		c.overhead(*ratio, &faults)
	}
	c.hibernation(s.DefaultHibernateConfig, &faults)
	c.support(s.SupportContainerResources, &faults)
	if o := s.VirtualMachineOptions; o != nil {
		c.NoSerialConsoleLog = o.DisableSerialConsoleLog != nil
	}
	return c, faults
}

// machines reads machine types; what is set for an architecture counts over what is set
// without one, which is amd64's.
func (c *Configuration) machines(s *kubevirtv1.KubeVirtConfiguration, faults *[]Ignored) {
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
	if a := s.ArchitectureConfiguration; a != nil {
		for architecture, settings := range map[string]*kubevirtv1.ArchitectureSettings{"amd64": a.AMD64, "arm64": a.ARM64} {
			if settings != nil {
				set(architecture, settings.MachineType, settings.EmulatedMachines)
			}
		}
		c.architecture(a.DefaultArchitecture, faults)
	}
	for _, architecture := range []string{"amd64", "arm64"} {
		c.allowDefault(architecture, faults)
	}
}

func (c *Configuration) architecture(name string, faults *[]Ignored) {
	if _, known := c.MachineType[name]; name != "" && known {
		c.DefaultArchitecture = name
	} else if name != "" {
		*faults = append(*faults, Ignored{"configuration.architectureConfiguration.defaultArchitecture",
			fmt.Sprintf("%.40q is neither amd64 nor arm64; %s is used", name, c.DefaultArchitecture)})
	}
}

// allowDefault makes the machine type of VMs that name none one that is allowed: else each of
// them would be accepted, and could not start.
func (c *Configuration) allowDefault(architecture string, faults *[]Ignored) {
	field, standard := "configuration.architectureConfiguration."+architecture, Default()
	if machine := c.MachineType[architecture]; !c.Emulates(architecture, machine) && machine != standard.MachineType[architecture] {
		c.MachineType[architecture] = standard.MachineType[architecture]
		*faults = append(*faults, Ignored{field + ".machineType",
			fmt.Sprintf("%.63q is not among emulatedMachines; %s is used", machine, c.MachineType[architecture])})
	}
	if !c.Emulates(architecture, c.MachineType[architecture]) {
		c.EmulatedMachines[architecture] = standard.EmulatedMachines[architecture]
		*faults = append(*faults, Ignored{field + ".emulatedMachines",
			fmt.Sprintf("the machine type %s of VMs that name none is not among them; %s are used",
				c.MachineType[architecture], strings.Join(c.EmulatedMachines[architecture], " and "))})
	}
}

// Emulates says whether VMs of an architecture may have a machine type.
func (c *Configuration) Emulates(architecture, machine string) bool {
	return slices.ContainsFunc(c.EmulatedMachines[architecture], func(glob string) bool {
		matches, err := path.Match(glob, machine)
		return err == nil && matches
	})
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
	c.gates(d, faults)
}

// Feature gates that have an effect.
const (
	// GateHypervStrictCheck: VMs run only where the node has the Hyper-V features that they name.
	GateHypervStrictCheck = "HypervStrictCheck"
	// GateConfigurableHypervisor: the KubeVirt object names the hypervisor of VMs that name none.
	GateConfigurableHypervisor = "ConfigurableHypervisor"
	// GatePluginVirtualizationStacks: the KubeVirt object has a virtualisation profile.
	GatePluginVirtualizationStacks = "PluginVirtualizationStacks"
)

// hasEffect says whether a feature gate switches something.
func hasEffect(gate string) bool {
	return slices.Contains([]string{GateHypervStrictCheck, GateConfigurableHypervisor, GatePluginVirtualizationStacks}, gate)
}

// gates reads feature gates. All of those with an effect are off unless they are named.
func (c *Configuration) gates(d *kubevirtv1.DeveloperConfiguration, faults *[]Ignored) {
	const field = "configuration.developerConfiguration."
	c.FeatureGates = make(map[string]bool)
	if without := withoutEffect(d.FeatureGates); without != "" {
		*faults = append(*faults, Ignored{field + "featureGates", without + ": vmlet has no such gates: what it supports is always on"})
	}
	if without := withoutEffect(d.DisabledFeatureGates); without != "" {
		*faults = append(*faults, Ignored{field + "disabledFeatureGates", without + ": vmlet has no such gates: what it supports can't be switched off"})
	}
	for _, gate := range d.FeatureGates {
		switch {
		case !hasEffect(gate):
		case slices.Contains(d.DisabledFeatureGates, gate):
			*faults = append(*faults, Ignored{field + "disabledFeatureGates", gate + " is in featureGates, too, and stays off"})
		default:
			c.FeatureGates[gate] = true
		}
	}
}

// withoutEffect joins the names of those gates that have none.
func withoutEffect(gates []string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(gates), hasEffect), ", ")
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
	if c.DefaultInterface == "bridge" && !c.PermitBridge {
		c.DefaultInterface = "masquerade"
		*faults = append(*faults, Ignored{"configuration.network.defaultNetworkInterface",
			"permitBridgeInterfaceOnPodNetwork is false, so that no VM may have bridge; masquerade is used"})
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
