package validation

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/spec"
)

// start checks how the guest starts and ends.
func start(s *kubevirtv1.VirtualMachineInstanceSpec, at *field.Path) (faults field.ErrorList) {
	if strategy := s.StartStrategy; strategy != nil && *strategy != kubevirtv1.StartRestore {
		faults = append(faults, oneOf(*strategy, []kubevirtv1.StartStrategy{kubevirtv1.StartPaused}, at.Child("startStrategy"))...)
		if *strategy == kubevirtv1.StartPaused && s.LivenessProbe != nil {
			faults = append(faults, field.Forbidden(at.Child("livenessProbe"), "a guest that starts paused fails it: leave out livenessProbe or startStrategy"))
		}
	}
	if grace := s.TerminationGracePeriodSeconds; grace != nil && (*grace < 0 || *grace > spec.MaxGraceSecond) {
		faults = append(faults, field.Invalid(at.Child("terminationGracePeriodSeconds"), *grace, "want 0 to 86400 seconds, which is a day"))
	}
	return faults
}

func probes(s *kubevirtv1.VirtualMachineInstanceSpec, at *field.Path) field.ErrorList {
	liveness, readiness := at.Child("livenessProbe"), at.Child("readinessProbe")
	faults := append(probe(s.LivenessProbe, liveness), probe(s.ReadinessProbe, readiness)...)
	if p := s.LivenessProbe; p != nil && p.SuccessThreshold > 1 {
		faults = append(faults, field.Invalid(liveness.Child("successThreshold"), p.SuccessThreshold, "of a livenessProbe it is 1: leave it out"))
	}
	if podNetwork(s) {
		return faults
	}
	const advice = "the guest has no interface on the pod's network, where it could be reached: add one or leave out the probe"
	if reachesGuest(s.LivenessProbe) {
		faults = append(faults, field.Forbidden(liveness, advice))
	}
	if reachesGuest(s.ReadinessProbe) {
		faults = append(faults, field.Forbidden(readiness, advice))
	}
	return faults
}

func reachesGuest(p *kubevirtv1.Probe) bool {
	return p != nil && (p.HTTPGet != nil || p.TCPSocket != nil)
}

// podNetwork says whether the guest has an interface on the pod's network, by its
// specification or by default.
func podNetwork(s *kubevirtv1.VirtualMachineInstanceSpec) bool {
	if len(s.Networks) == 0 && len(s.Domain.Devices.Interfaces) == 0 {
		attach := s.Domain.Devices.AutoattachPodInterface
		return attach == nil || *attach
	}
	return slices.ContainsFunc(s.Networks, func(n kubevirtv1.Network) bool { return n.Pod != nil })
}

func probe(p *kubevirtv1.Probe, at *field.Path) (faults field.ErrorList) {
	if p == nil {
		return nil
	}
	for _, n := range []struct {
		name  string
		value int32
	}{
		{"initialDelaySeconds", p.InitialDelaySeconds}, {"timeoutSeconds", p.TimeoutSeconds}, {"periodSeconds", p.PeriodSeconds},
		{"successThreshold", p.SuccessThreshold}, {"failureThreshold", p.FailureThreshold},
	} {
		if n.value < 0 {
			faults = append(faults, field.Invalid(at.Child(n.name), n.value, "want 0 (the default) or more"))
		}
	}
	if p.HTTPGet != nil {
		faults = append(faults, portOf(p.HTTPGet.Port, at.Child("httpGet", "port"))...)
		faults = append(faults, oneOf(p.HTTPGet.Scheme, []corev1.URIScheme{corev1.URISchemeHTTP, corev1.URISchemeHTTPS}, at.Child("httpGet", "scheme"))...)
	}
	if p.TCPSocket != nil {
		faults = append(faults, portOf(p.TCPSocket.Port, at.Child("tcpSocket", "port"))...)
	}
	return faults
}

// portOf wants a number, or the name of one of the pod's ports.
func portOf(port intstr.IntOrString, at *field.Path) (faults field.ErrorList) {
	problems := validation.IsValidPortNum(int(port.IntVal))
	if port.Type == intstr.String {
		problems = validation.IsValidPortName(port.StrVal)
	}
	for _, problem := range problems {
		faults = append(faults, field.Invalid(at, short(port.String()), problem))
	}
	return faults
}

// credentials wants for each key a volume by which it gets into the guest.
func credentials(s *kubevirtv1.VirtualMachineInstanceSpec, at *field.Path) (faults field.ErrorList) {
	for i, c := range s.AccessCredentials {
		if c.SSHPublicKey == nil {
			faults = append(faults, password(c.UserPassword, at.Index(i).Child("userPassword"))...)
			continue
		}
		key := at.Index(i).Child("sshPublicKey")
		source, way := key.Child("source", "secret"), key.Child("propagationMethod")
		if secret := c.SSHPublicKey.Source.Secret; secret == nil {
			faults = append(faults, field.Required(source, "the Secret that has the keys has to be set"))
		} else {
			faults = append(faults, required(secret.SecretName, "Secret", source.Child("secretName"))...)
		}
		method := c.SSHPublicKey.PropagationMethod
		if method.QemuGuestAgent != nil && len(method.QemuGuestAgent.Users) == 0 {
			faults = append(faults, field.Required(way.Child("qemuGuestAgent", "users"), "name the users who may log in with the keys"))
		}
		if method.NoCloud != nil && !slices.ContainsFunc(s.Volumes, func(v kubevirtv1.Volume) bool { return v.CloudInitNoCloud != nil }) {
			faults = append(faults, field.Invalid(way.Child("noCloud"), field.OmitValueType{}, "the keys are part of a cloudInitNoCloud volume: add one"))
		}
		if method.ConfigDrive != nil && !slices.ContainsFunc(s.Volumes, func(v kubevirtv1.Volume) bool { return v.CloudInitConfigDrive != nil }) {
			faults = append(faults, field.Invalid(way.Child("configDrive"), field.OmitValueType{}, "the keys are part of a cloudInitConfigDrive volume: add one"))
		}
	}
	return faults
}

// password wants a Secret and the one way into the guest.
func password(p *kubevirtv1.UserPassword, at *field.Path) (faults field.ErrorList) {
	if p == nil {
		return nil // the API wants one of both
	}
	source := at.Child("source", "secret")
	if p.Source.Secret == nil {
		faults = append(faults, field.Required(source, "the Secret that has the passwords has to be set"))
	} else {
		faults = append(faults, required(p.Source.Secret.SecretName, "Secret", source.Child("secretName"))...)
	}
	if p.PropagationMethod.QemuGuestAgent == nil {
		faults = append(faults, field.Required(at.Child("propagationMethod", "qemuGuestAgent"), "passwords get into the guest by its agent: set it to {}"))
	}
	return faults
}
