package deploy

import (
	"bytes"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	podsecurity "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	"github.com/vmlet/vmlet/autopilot/catalog"
	"github.com/vmlet/vmlet/autopilot/rbac"
)

// clusterImage is what the cluster's programs are in.
const clusterImage = "vmlet.invalid/vmlet-cluster:local"

// manifests are those that kustomize renders of a folder, by kind and name.
type manifests map[string][]byte

func rendered(t *testing.T, folder string) manifests {
	t.Helper()
	all := make(manifests)
	for _, text := range bytes.Split(render(t, folder), []byte("\n---\n")) {
		var o metav1.PartialObjectMetadata
		if err := yaml.Unmarshal(text, &o); err != nil {
			t.Fatal(err)
		}
		all[o.Kind+" "+o.Name] = text
	}
	return all
}

// decode reads a manifest strictly.
func decode[T any](t *testing.T, all manifests, kindAndName string) (o T) {
	t.Helper()
	text, there := all[kindAndName]
	if !there {
		t.Fatalf("there is no %s", kindAndName)
	}
	if err := yaml.UnmarshalStrict(text, &o); err != nil {
		t.Fatalf("%s: %v", kindAndName, err)
	}
	return o
}

// arguments are a program's flags, each with its value.
func arguments(d appsv1.Deployment) map[string]string {
	flags := make(map[string]string)
	for pair := range slices.Chunk(d.Spec.Template.Spec.Containers[0].Args, 2) {
		flags[pair[0]] = pair[1]
	}
	return flags
}

// The programs are told what kustomize calls their parts: by these names they give certificates,
// send webhooks and see that they are being uninstalled.
func TestProgramsKnowTheNames(t *testing.T) {
	for folder, prefix := range map[string]string{"cluster": "", "testdata/renamed": "my-"} {
		all := rendered(t, folder)
		named := map[string][]string{
			"--agent-name":      {"DaemonSet", "ServiceAccount"},
			"--controller-name": {"Deployment", "ServiceAccount"},
			"--api-name":        {"Deployment", "Service", "ServiceAccount"},
		}
		for program, flags := range map[string][]string{
			"vmlet-controller": {"--agent-name", "--controller-name", "--api-name"}, "vmlet-api": {"--controller-name", "--api-name"},
		} {
			given := arguments(decode[appsv1.Deployment](t, all, "Deployment "+prefix+program))
			for _, flag := range flags {
				for _, kind := range named[flag] {
					if object := kind + " " + given[flag]; all[object] == nil {
						t.Errorf("%s: %s is given %s %q, and there is no %s", folder, program, flag, given[flag], object)
					}
				}
			}
		}
	}
}

// The cluster's programs have no privilege, one of two replicas at least, and probes at ports
// that they have.
func TestControlPods(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	all := rendered(t, "cluster")
	maps.Copy(all, rendered(t, "autopilot"))
	for _, name := range []string{"vmlet-controller", "vmlet-api", "vmlet-autopilot"} {
		d := decode[appsv1.Deployment](t, all, "Deployment "+name)
		pod := d.Spec.Template
		restricted := podsecurity.LevelVersion{Level: podsecurity.LevelRestricted, Version: podsecurity.LatestVersion()}
		for _, r := range evaluator.EvaluatePod(restricted, &pod.ObjectMeta, &pod.Spec) {
			if !r.Allowed {
				t.Errorf("%s: PodSecurity restricted refuses it: %s: %s", name, r.ForbiddenReason, r.ForbiddenDetail)
			}
		}
		if pod.Spec.ServiceAccountName != name {
			t.Errorf("%s runs as %s, want an account of its own name", name, pod.Spec.ServiceAccountName)
		}
		c := pod.Spec.Containers[0]
		if c.Image != clusterImage || c.ImagePullPolicy != corev1.PullIfNotPresent {
			t.Errorf("%s has the image %s, pulled %s, want %s, IfNotPresent", name, c.Image, c.ImagePullPolicy, clusterImage)
		}
		for kind, probe := range map[string]*corev1.Probe{"liveness": c.LivenessProbe, "readiness": c.ReadinessProbe, "startup": c.StartupProbe} {
			if probe == nil || !hasPort(c, probe.HTTPGet.Port.StrVal) {
				t.Errorf("%s: its %s probe asks no port that it has", name, kind)
			}
		}
		if c.SecurityContext.ReadOnlyRootFilesystem == nil || !*c.SecurityContext.ReadOnlyRootFilesystem {
			t.Errorf("%s: its root filesystem can be written to", name)
		}
		budget := decode[policyv1.PodDisruptionBudget](t, all, "PodDisruptionBudget "+name)
		if !selects(t, budget.Spec.Selector, pod.Labels) || budget.Spec.MaxUnavailable.IntVal != 1 {
			t.Errorf("%s: the budget lets %s of %d replicas be evicted at once, want 1", name, budget.Spec.MaxUnavailable, *d.Spec.Replicas)
		}
	}
	if launcher := arguments(decode[appsv1.Deployment](t, all, "Deployment vmlet-controller"))["--launcher-image"]; launcher != image {
		t.Errorf("VMs' pods have the image %s, want the agents', %s", launcher, image)
	}
}

// The autopilot's metrics are for Prometheus alone; its debug pages are on no port of its pods.
func TestAutopilotNetworkPolicy(t *testing.T) {
	all := rendered(t, "autopilot")
	d := decode[appsv1.Deployment](t, all, "Deployment vmlet-autopilot")
	p := decode[networkingv1.NetworkPolicy](t, all, "NetworkPolicy vmlet-autopilot")
	if !selects(t, &p.Spec.PodSelector, d.Spec.Template.Labels) {
		t.Error("it is not about the autopilot's pods")
	}
	for _, rule := range p.Spec.Ingress {
		for _, port := range rule.Ports {
			if port.Port.StrVal != "metrics" || !hasPort(d.Spec.Template.Spec.Containers[0], "metrics") {
				t.Errorf("it opens port %s", port.Port)
			}
		}
		for _, from := range rule.From {
			if !chosen(from.NamespaceSelector) {
				t.Errorf("it lets in %+v", from)
			}
		}
	}
	for _, port := range d.Spec.Template.Spec.Containers[0].Ports {
		if port.ContainerPort == 8081 {
			t.Error("the debug pages are on a port of the pod")
		}
	}
}

func hasPort(c corev1.Container, name string) bool {
	return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == name })
}

func selects(t *testing.T, s *metav1.LabelSelector, of map[string]string) bool {
	t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		t.Fatal(err)
	}
	return selector.Matches(labels.Set(of))
}

// The API server, which no selector can name, gets at the webhooks; metrics are for Prometheus
// alone, and nothing else is open.
func TestControlNetworkPolicy(t *testing.T) {
	all := rendered(t, "cluster")
	p := decode[networkingv1.NetworkPolicy](t, all, "NetworkPolicy vmlet-control")
	for _, name := range []string{"vmlet-controller", "vmlet-api"} {
		if d := decode[appsv1.Deployment](t, all, "Deployment "+name); !selects(t, &p.Spec.PodSelector, d.Spec.Template.Labels) {
			t.Errorf("it is not about the pods of %s", name)
		}
	}
	opened := make(map[string]bool) // to everybody
	for _, rule := range p.Spec.Ingress {
		for _, port := range rule.Ports {
			opened[port.Port.StrVal] = len(rule.From) == 0
		}
		for _, from := range rule.From {
			if !chosen(from.NamespaceSelector) {
				t.Errorf("it lets in %+v", from)
			}
		}
	}
	if want := map[string]bool{"webhooks": true, "subresources": true, "metrics": false}; !maps.Equal(opened, want) {
		t.Errorf("it opens %v, want %v", opened, want)
	}
	api := decode[appsv1.Deployment](t, all, "Deployment vmlet-api").Spec.Template
	service := decode[corev1.Service](t, all, "Service vmlet-api")
	if !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(api.Labels)) || !hasPort(api.Spec.Containers[0], service.Spec.Ports[0].TargetPort.StrVal) {
		t.Errorf("the Service's selector %v or port %s is none of vmlet-api's", service.Spec.Selector, service.Spec.Ports[0].TargetPort.StrVal)
	}
	if got := service.Spec.Ports[0].Port; got != 443 {
		t.Errorf("the Service has port %d, want 443, to which webhooks are sent", got)
	}
	if got := service.Spec.Ports[1]; got.Port != 8443 || !hasPort(api.Spec.Containers[0], got.TargetPort.StrVal) {
		t.Errorf("the Service's second port is %d to %s, want 8443, which the APIServices name", got.Port, got.TargetPort.StrVal)
	}
}

// The controller knows vmlet's definitions by their label.
func TestDefinitionsAreVmlets(t *testing.T) {
	for name, text := range rendered(t, "cluster") {
		if !strings.HasPrefix(name, "CustomResourceDefinition ") {
			continue
		}
		var o metav1.PartialObjectMetadata
		if err := yaml.Unmarshal(text, &o); err != nil {
			t.Fatal(err)
		}
		if got := o.Labels["app.kubernetes.io/part-of"]; got != "vmlet" {
			t.Errorf("%s: app.kubernetes.io/part-of is %q, want vmlet", name, got)
		}
	}
}

func TestClusterImageName(t *testing.T) {
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(makefile), "\nCLUSTER_IMAGE ?= "+clusterImage+"\n") {
		t.Errorf("the Makefile does not say CLUSTER_IMAGE ?= %s", clusterImage)
	}
}

// The autopilot may do what its assets need, and nothing else.
func TestAutopilotRole(t *testing.T) {
	c, err := catalog.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	want, err := rbac.Generate(c, "vmlet")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("autopilot/role.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("deploy/autopilot/role.yaml is not what the assets need: run make generate-rbac")
	}
}

// What writes on nodes has two of their folders, and no capability, token or network of theirs.
func TestNodeTuningPods(t *testing.T) {
	d := decode[appsv1.DaemonSet](t, rendered(t, "node-tuning"), "DaemonSet vmlet-node-tuning")
	pod := d.Spec.Template.Spec
	given := privileges(pod)
	if want := map[string]bool{"/etc/kubernetes/kubelet.conf.d": false, "/sys/kernel/mm/hugepages": false}; !maps.Equal(given, want) {
		t.Errorf("it is given %v, want %v", given, want)
	}
	s := pod.Containers[0].SecurityContext
	if !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(s.Capabilities.Add) > 0 || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem {
		t.Errorf("it has more rights than it needs: %+v", s)
	}
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		t.Error("it has a token, and asks the API server nothing")
	}
	if got := pod.Containers[0].Image; got != clusterImage {
		t.Errorf("it has the image %s, want %s", got, clusterImage)
	}
}
