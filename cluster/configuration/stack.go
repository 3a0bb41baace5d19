package configuration

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/webhookrules"
	"github.com/vmlet/vmlet/hypervisor/standard"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/described"
	"github.com/vmlet/vmlet/vmm/profile"
	vmms "github.com/vmlet/vmlet/vmm/standard"
)

// Stack is a virtualisation stack. The zero Stack is vmlet's own.
type Stack struct {
	// Name is the profile's.
	Name string
	// VMM of VMs that name none; empty: each node chooses.
	VMM string
	// VMMs are those that the launcher's image has drivers for, as far as is known; vmlet's own are not
	// among them.
	VMMs []described.VMM
	// Launcher is the image that runs VMs; empty: vmlet's.
	Launcher string
	// Capabilities of the container that runs a VM.
	Capabilities []corev1.Capability
	// Overhead is the memory of a VM's pod beside the guest's; nil: what is reckoned.
	Overhead *resource.Quantity
	// Webhooks in place of vmlet's own; nil: none.
	Webhooks *kubevirtv1.PluginWebhooks
}

// Registry has the VMMs that VMs may name: vmlet's own, the preferred one first, and the stack's.
func (s Stack) Registry() *vmm.Registry {
	all := vmms.Registry().All()
	for _, v := range s.VMMs {
		all = append(all, v)
	}
	r, err := vmm.NewRegistry(all...)
	if err != nil {
		return vmms.Registry() // which add has seen to
	}
	return r
}

// add takes in a VMM that the launcher's image has a driver for, if it can be one.
func (s *Stack) add(v described.VMM) error {
	if _, err := vmm.NewRegistry(append(s.Registry().All(), v)...); err != nil {
		return err
	}
	s.VMMs = append(s.VMMs, v)
	return nil
}

// Mutates says whether webhooks of the stack may change instances after their defaults were filled in.
func (s Stack) Mutates() bool { return s.Webhooks != nil && len(s.Webhooks.MutatingWebhooks) > 0 }

// stack reads the profile. A part of it that has a fault has no effect.
func (c *Configuration) stack(p *kubevirtv1.VirtualizationProfile, found *kubevirtv1.VirtualizationStackStatus, faults *[]Ignored) {
	const field = "configuration.virtualizationProfile"
	if p == nil {
		return
	}
	if !c.FeatureGates[GatePluginVirtualizationStacks] {
		*faults = append(*faults, Ignored{field, "add the feature gate " + GatePluginVirtualizationStacks + " to developerConfiguration.featureGates"})
		return
	}
	c.Stack.Name = p.Name
	c.found(p, found)
	c.components(p, faults)
	launcher := p.VirtLauncher
	c.Stack.Launcher = launcher.VirtLauncherImage
	if o := launcher.VirtLauncherOverhead; o != nil && o.Sign() <= 0 {
		*faults = append(*faults, Ignored{field + ".virtLauncher.virtLauncherOverhead", fmt.Sprintf("%s is no size: want one such as 220Mi", o)})
	} else if o != nil {
		c.Stack.Overhead = new(o.DeepCopy())
	}
	c.Stack.Webhooks = webhooks(p.PluginWebhooks, field+".pluginWebhooks", faults)
}

// found takes in the VMMs that nodes have found drivers for in the profile's image.
func (c *Configuration) found(p *kubevirtv1.VirtualizationProfile, found *kubevirtv1.VirtualizationStackStatus) {
	if found == nil || found.Name != p.Name || found.Image != p.VirtLauncher.VirtLauncherImage {
		return
	}
	for _, f := range found.VMMs {
		var v described.VMM
		if f.Description != "" && json.Unmarshal([]byte(f.Description), &v) == nil && v.ID == f.Name {
			_ = c.Stack.add(v) // one with the name of another is not used
		}
	}
}

// components reads what the controller also tells nodes, and which hypervisor and VMM VMs get that name none.
func (c *Configuration) components(p *kubevirtv1.VirtualizationProfile, faults *[]Ignored) {
	own := profile.Profile{Name: p.Name, Components: profile.Components{
		HypervisorDevice: p.VirtualizationComponents.HypervisorDevice, VCPURegex: p.VirtualizationComponents.VCPURegex,
		VMMDaemonProcess: p.VirtualizationComponents.VMMDaemonProcess, VMMProcessExecutable: p.VirtualizationComponents.VMMProcessExecutable,
		PITPIDPrefix: p.VirtualizationComponents.PITPIDPrefix,
	}}
	for _, capability := range p.VirtLauncher.VirtLauncherCapabilities {
		own.Launcher.Capabilities = append(own.Launcher.Capabilities, string(capability))
	}
	brings := c.brings(p)
	known := c.Stack.Registry()
	sound := true
	own.Validate(standard.Registry(), known, func(key, format string, args ...any) {
		sound = false
		*faults = append(*faults, Ignored{"configuration." + key, fmt.Sprintf(format, args...) + "; virtualizationComponents and virtLauncherCapabilities have no effect until it is mended"})
	})
	if !sound {
		return
	}
	for _, note := range own.Notes() {
		*faults = append(*faults, Ignored{"configuration." + note.Key, note.Text})
	}
	c.Stack.Capabilities = p.VirtLauncher.VirtLauncherCapabilities
	c.Stack.VMM, _ = own.VMM(known)
	if name, chosen := own.Hypervisor(standard.Registry()); chosen && c.Hypervisor == "" {
		c.Hypervisor = name
	}
	own.Launcher = profile.Launcher{}
	if brings {
		own.Components.VMMProcessExecutable = "" // nodes know none of it
	}
	c.Nodes.VirtualizationProfile = own
}

// brings takes in the VMM that a profile names by its program if that is none of vmlet's: then the launcher's
// image has a driver of that name.
func (c *Configuration) brings(p *kubevirtv1.VirtualizationProfile) bool {
	name := path.Base(p.VirtualizationComponents.VMMProcessExecutable)
	own := profile.Profile{Components: profile.Components{VMMProcessExecutable: name}}
	if _, known := own.VMM(vmms.Registry()); known || p.VirtualizationComponents.VMMProcessExecutable == "" || p.VirtLauncher.VirtLauncherImage == "" {
		return false
	}
	if _, known := own.VMM(c.Stack.Registry()); known {
		return true
	}
	return c.Stack.add(described.VMM{ID: name}) == nil
}

// webhooks leaves out those that can't be registered, or would stop more than VMs.
func webhooks(p *kubevirtv1.PluginWebhooks, field string, faults *[]Ignored) *kubevirtv1.PluginWebhooks {
	if p == nil {
		return nil
	}
	if image := p.WebhookContainerImage; image == "" || strings.ContainsFunc(image, unicode.IsSpace) {
		*faults = append(*faults, Ignored{field + ".webhookContainerImage", fmt.Sprintf("%.63q is no container image; pluginWebhooks has no effect until it is mended", image)})
		return nil
	}
	out := p.DeepCopy()
	sound := func(list string, all []kubevirtv1.PluginWebhookSpecification) []kubevirtv1.PluginWebhookSpecification {
		return slices.DeleteFunc(all, func(w kubevirtv1.PluginWebhookSpecification) bool {
			at, why := webhookFault(w)
			if at != "" {
				*faults = append(*faults, Ignored{fmt.Sprintf("%s.%s[%s].%s", field, list, w.Name, at), why})
			}
			return at != ""
		})
	}
	out.ValidatingWebhooks = sound("validatingWebhooks", out.ValidatingWebhooks)
	out.MutatingWebhooks = sound("mutatingWebhooks", out.MutatingWebhooks)
	return out
}

// webhookFault is the path below a webhook of a field with a fault, and what is wrong; empty: nothing.
// The API server would refuse all of a plugin's webhooks for the fault of one.
func webhookFault(w kubevirtv1.PluginWebhookSpecification) (at, why string) {
	for _, part := range strings.Split(strings.TrimSuffix(strings.TrimPrefix(w.RestServicePath, "/"), "/"), "/") {
		if w.RestServicePath != "/" && len(validation.IsDNS1123Subdomain(part)) > 0 {
			return "restServicePath", fmt.Sprintf("%.63q: the API server wants lower-case letters, digits, '-' and '.' between slashes", w.RestServicePath)
		}
	}
	for i, rule := range w.Rules {
		at := fmt.Sprintf("rules[%d].", i)
		for _, group := range rule.APIGroups {
			if group != kubevirtv1.Group && !strings.HasSuffix(group, "."+kubevirtv1.Group) {
				return at + "apiGroups", fmt.Sprintf("%.63q: want %s, or a group that ends in .%s: a plugin that does not answer must not stop other requests", group, kubevirtv1.Group, kubevirtv1.Group)
			}
		}
		if field, why := webhookrules.Fault(rule); field != "" {
			return at + field, why
		}
	}
	return "", ""
}
