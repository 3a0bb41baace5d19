// Package launcher makes the pod of a VirtualMachineInstance. It is pure: the same instance,
// configuration and claims give the same pod. Package convert makes the pod's
// specification; this one puts it into annotations, and gives the pod the containers, volumes,
// resources and nodes that go with it. Start reading at Pod.
package launcher

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/launch"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
)

const (
	// maxName is the longest name of a pod whose VM can have the pod's name: a DNS label's.
	maxName = 63
	// hashDigits of the instance's UID end the pod's name: 40 bits among the instances that
	// ever had that name.
	hashDigits = 10
	// graceMargin is how many seconds longer than its guest a pod has to end: the guest is
	// killed, and what ends with it is written down.
	graceMargin = 30
	// user and group are those of the VMM, and of the files on claims (KubeVirt's and CDI's).
	user = 107
)

// Annotations that other programs read on VMs' pods.
const (
	annotationContainer   = "kubectl.kubernetes.io/default-container"
	annotationDescheduler = "descheduler.alpha.kubernetes.io/request-evict-only"
)

// instanceKind is the pod's owner's.
var instanceKind = schema.GroupVersionKind{Group: kubevirtv1.Group, Version: kubevirtv1.Version, Kind: "VirtualMachineInstance"}

// launcher makes one pod.
type launcher struct {
	convert.Input
	vmi         *kubevirtv1.VirtualMachineInstance
	spec        *specv1.VirtualMachineSpec
	preparation *launch.Preparation
	overhead    overheads
}

// Pod returns the instance's pod. The error joins a field.Error for each fault. All claims
// that the instance's volumes name have to be in the input.
func Pod(in convert.Input) (*corev1.Pod, error) {
	s, preparation, err := convert.Specification(in)
	if err != nil {
		return nil, err
	}
	l := &launcher{Input: in, vmi: in.Instance, spec: s, preparation: preparation}
	if err := l.check(); err != nil {
		return nil, err
	}
	if l.overhead, err = overheadOf(in, s); err != nil {
		return nil, err
	}
	annotations, err := l.annotations()
	if err != nil {
		return nil, err
	}
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name:            PodName(l.vmi),
			Namespace:       l.vmi.Namespace,
			Labels:          labels(l.vmi),
			Annotations:     annotations,
			Finalizers:      []string{contract.FinalizerPod},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(l.vmi, instanceKind)},
		},
		Spec: l.podSpec(),
	}, nil
}

// PodName is the one name that an instance's pod can have, so that nobody, however stale what
// he sees, makes a second.
func PodName(vmi *kubevirtv1.VirtualMachineInstance) string {
	name := strings.ReplaceAll(vmi.Name, ".", "-")
	room := maxName - len(contract.PodPrefix) - hashDigits - 1
	name = strings.TrimRight(name[:min(len(name), room)], "-")
	return contract.PodPrefix + name + "-" + hash(vmi.UID)
}

func hash(uid types.UID) string {
	sum := sha256.Sum256([]byte(uid))
	return hex.EncodeToString(sum[:])[:hashDigits]
}

// InstanceID is the label by which Services select an instance's pod: its name, shortened
// where that is longer than a label's value as virtctl shortens it.
func InstanceID(name string) string {
	if len(name) <= 63 {
		return name
	}
	sum := sha1.Sum([]byte(name))
	return name[:54] + "-" + hex.EncodeToString(sum[:4])
}

func labels(vmi *kubevirtv1.VirtualMachineInstance) map[string]string {
	all := maps.Clone(vmi.Labels)
	if all == nil {
		all = make(map[string]string)
	}
	delete(all, contract.LabelAttachedTo) // of such a pod evictions wait for another
	all[contract.LabelApp] = contract.LabelAppLauncher
	all[contract.LabelCreatedBy] = string(vmi.UID)
	all[contract.LabelInstanceID] = InstanceID(vmi.Name)
	all[contract.LabelInstanceName] = convert.Hostname(vmi)
	return all
}

// annotations are the instance's without those that say something of the object itself, and what what
// the pod's programs read.
func (l *launcher) annotations() (map[string]string, error) {
	all := make(map[string]string)
	for key, value := range l.vmi.Annotations {
		if !strings.HasPrefix(key, "kubectl.kubernetes.io/") && !strings.HasSuffix(key, "-observed-api-version") {
			all[key] = value
		}
	}
	all[annotationContainer] = contract.ContainerCompute
	all[annotationDescheduler] = ""
	all[contract.AnnotationDomain] = l.vmi.Name
	all[contract.AnnotationMemoryOverhead] = strconv.FormatInt(l.overhead.request, 10)
	delete(all, contract.AnnotationPreparation)
	delete(all, contract.AnnotationOpensAttached)
	if l.opensAttached() {
		all[contract.AnnotationOpensAttached] = "true"
	}
	if err := l.askMultus(all); err != nil {
		return nil, err
	}
	return all, l.tell(all)
}

// podSpec is the pod's specification.
func (l *launcher) podSpec() corev1.PodSpec {
	vmi, c := &l.vmi.Spec, &l.Configuration
	pod := corev1.PodSpec{
		RestartPolicy:                 corev1.RestartPolicyNever,
		TerminationGracePeriodSeconds: new(int64(convert.Grace(l.vmi).Seconds()) + graceMargin),
		SecurityContext:               l.securityContext(),
		EnableServiceLinks:            new(false),
		AutomountServiceAccountToken:  new(false),
		ServiceAccountName:            l.serviceAccount(),
		ImagePullSecrets:              l.pullSecrets(),
		Hostname:                      convert.Hostname(l.vmi),
		Subdomain:                     vmi.Subdomain,
		DNSPolicy:                     vmi.DNSPolicy,
		DNSConfig:                     vmi.DNSConfig.DeepCopy(),
		SchedulerName:                 vmi.SchedulerName,
		PriorityClassName:             vmi.PriorityClassName,
		NodeSelector:                  l.nodeSelector(),
		Affinity:                      l.affinity(),
		Tolerations:                   l.tolerations(),
		InitContainers:                l.initContainers(),
		Containers:                    []corev1.Container{l.compute()},
		Volumes:                       l.volumes(),
	}
	for i := range vmi.TopologySpreadConstraints {
		pod.TopologySpreadConstraints = append(pod.TopologySpreadConstraints, *vmi.TopologySpreadConstraints[i].DeepCopy())
	}
	if l.vmi.Labels[contract.LabelPoolStandby] != "" {
		pod.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: contract.ConditionServes}}
	}
	if c.RuntimeClass != "" {
		pod.RuntimeClassName = new(c.RuntimeClass)
	}
	return pod
}

// lowPorts lets the VMM, which has no capability, bind ports below 1024 for the guest. It is
// one of the few sysctls that PodSecurity's restricted level allows.
var lowPorts = corev1.Sysctl{Name: "net.ipv4.ip_unprivileged_port_start", Value: "0"}

func (l *launcher) securityContext() *corev1.PodSecurityContext {
	s := &corev1.PodSecurityContext{
		RunAsNonRoot:   new(true),
		RunAsUser:      new(int64(user)),
		RunAsGroup:     new(int64(user)),
		FSGroup:        new(int64(user)),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	for _, n := range l.spec.Networks {
		for _, p := range n.GetPod().GetFallback().GetPorts() {
			if p.HostPort < 1024 {
				s.Sysctls = []corev1.Sysctl{lowPorts}
			}
		}
	}
	return s
}

// pullSecrets are the cluster's, and those of the images that the instance names, each once.
func (l *launcher) pullSecrets() (secrets []corev1.LocalObjectReference) {
	seen := map[string]bool{"": true}
	add := func(name string) {
		if !seen[name] {
			seen[name] = true
			secrets = append(secrets, corev1.LocalObjectReference{Name: name})
		}
	}
	for _, s := range l.Configuration.ImagePullSecrets {
		add(s.Name)
	}
	for _, v := range l.vmi.Spec.Volumes {
		if v.ContainerDisk != nil {
			add(v.ContainerDisk.ImagePullSecret)
		}
	}
	if boot := l.kernelBoot(); boot != nil {
		add(boot.ImagePullSecret)
	}
	return secrets
}

// serviceAccount is the instance's, or that whose token a volume has.
func (l *launcher) serviceAccount() string {
	name := l.vmi.Spec.ServiceAccountName
	for _, v := range l.vmi.Spec.Volumes {
		if v.ServiceAccount != nil && name == "" {
			name = v.ServiceAccount.ServiceAccountName
		}
	}
	return name
}
