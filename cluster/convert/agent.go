package convert

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// AsksAgent tells whether a probe is one that the guest's agent answers.
func AsksAgent(p *kubevirtv1.Probe) bool {
	return p != nil && (p.Exec != nil || p.GuestAgentPing != nil)
}

// agentField is the first of an instance's fields that can't be without a channel to the
// guest's agent; nil: there is none. Every guest has one whose VMM can give it one.
func agentField(s *kubevirtv1.VirtualMachineInstanceSpec, at *field.Path) *field.Path {
	for _, p := range []struct {
		name  string
		probe *kubevirtv1.Probe
	}{{"livenessProbe", s.LivenessProbe}, {"readinessProbe", s.ReadinessProbe}} {
		if AsksAgent(p.probe) {
			return at.Child(p.name)
		}
	}
	if i := slices.IndexFunc(s.AccessCredentials, byAgent); i >= 0 {
		return at.Child("accessCredentials").Index(i)
	}
	return nil
}

func byAgent(c kubevirtv1.AccessCredential) bool {
	return c.UserPassword != nil || c.SSHPublicKey != nil && c.SSHPublicKey.PropagationMethod.QemuGuestAgent != nil
}

// AgentCredential is a Secret that the guest's agent brings into the guest: keys of these
// users, or, of none, passwords.
type AgentCredential struct {
	Secret string
	Users  []string
}

// AgentCredentials are those of an instance, in its order.
func AgentCredentials(vmi *kubevirtv1.VirtualMachineInstance) (all []AgentCredential) {
	for _, c := range vmi.Spec.AccessCredentials {
		switch {
		case !byAgent(c):
		case c.UserPassword != nil && c.UserPassword.Source.Secret != nil:
			all = append(all, AgentCredential{Secret: c.UserPassword.Source.Secret.SecretName})
		case c.SSHPublicKey != nil && c.SSHPublicKey.Source.Secret != nil && len(c.SSHPublicKey.PropagationMethod.QemuGuestAgent.Users) > 0:
			all = append(all, AgentCredential{Secret: c.SSHPublicKey.Source.Secret.SecretName, Users: c.SSHPublicKey.PropagationMethod.QemuGuestAgent.Users})
		}
	}
	return all
}
