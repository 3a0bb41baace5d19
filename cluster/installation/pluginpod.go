package installation

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vmlet/vmlet/cluster/configuration"
)

// What a plugin's container finds: docs/adding-a-stack.md tells its authors.
const (
	pluginPort         = 8443
	pluginCertificates = "/etc/plugin-admission-webhooks"
)

func pluginLabels() map[string]string {
	return map[string]string{"app.kubernetes.io/name": PluginName, partOf: vmlet}
}

func (i *Installation) pluginService() *corev1.Service {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Namespace: i.Namespace, Name: PluginName, Labels: pluginLabels()},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app.kubernetes.io/name": PluginName},
			Ports:    []corev1.ServicePort{{Name: "webhooks", Port: 443, TargetPort: intstr.FromInt32(pluginPort), Protocol: corev1.ProtocolTCP}},
		},
	}
}

// pluginDeployment is pods of their own, not containers in vmlet-api's: one that fails takes nothing of
// vmlet-api with it, and has no way to its credentials.
func (i *Installation) pluginDeployment(c configuration.Configuration, certificate string) *appsv1.Deployment {
	selector := map[string]string{"app.kubernetes.io/name": PluginName}
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Namespace: i.Namespace, Name: PluginName, Labels: pluginLabels()},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(2)),
			Selector: &metav1.LabelSelector{MatchLabels: selector},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: pluginLabels(), Annotations: map[string]string{"vmlet.io/certificate": certificate}},
				Spec: corev1.PodSpec{
					AutomountServiceAccountToken: new(false),
					EnableServiceLinks:           new(false),
					PriorityClassName:            "system-cluster-critical",
					SecurityContext: &corev1.PodSecurityContext{
						RunAsNonRoot: new(true), RunAsUser: new(int64(65532)), RunAsGroup: new(int64(65532)), FSGroup: new(int64(65532)),
						SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
					},
					TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
						MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway,
						LabelSelector: &metav1.LabelSelector{MatchLabels: selector},
					}},
					Containers:       []corev1.Container{pluginContainer(c.Stack.Webhooks.WebhookContainerImage, c.ImagePullPolicy)},
					ImagePullSecrets: c.ImagePullSecrets,
					Volumes: []corev1.Volume{{Name: "certificates", VolumeSource: corev1.VolumeSource{
						Secret: &corev1.SecretVolumeSource{SecretName: PluginName},
					}}},
				},
			},
		},
	}
}

func pluginContainer(image string, pull corev1.PullPolicy) corev1.Container {
	return corev1.Container{
		Name: "webhooks", Image: image, ImagePullPolicy: pull,
		Ports: []corev1.ContainerPort{{Name: "webhooks", ContainerPort: pluginPort, Protocol: corev1.ProtocolTCP}},
		Env: []corev1.EnvVar{
			{Name: "TLS_CERT_FILE", Value: pluginCertificates + "/" + corev1.TLSCertKey},
			{Name: "TLS_PRIVATE_KEY_FILE", Value: pluginCertificates + "/" + corev1.TLSPrivateKeyKey},
		},
		VolumeMounts: []corev1.VolumeMount{{Name: "certificates", MountPath: pluginCertificates, ReadOnly: true}},
		ReadinessProbe: &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(pluginPort)}}, PeriodSeconds: 5,
		},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi")},
		},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
}
