package deploy

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/vmlet/vmlet/agent/config"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/test/guest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// render has kustomize put a folder's manifests together.
func render(t *testing.T, folder string) []byte {
	t.Helper()
	kubectl, err := guest.Cached("kubernetes", "kubectl")
	if err != nil {
		t.Skip(err)
	}
	var complaints bytes.Buffer
	cmd := exec.Command(kubectl, "kustomize", folder)
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil || complaints.Len() > 0 {
		t.Fatalf("kubectl kustomize %s: %v\n%s", folder, err, &complaints)
	}
	return out
}

// What is applied changes only where somebody has looked at it.
func TestRendered(t *testing.T) {
	// renamed are kustomizations of a user's, with another namespace and a prefix.
	for _, folder := range []string{"autopilot", "base", "cluster", "monitoring", "metrics-authentication", "node-tuning", "common-instancetypes", "testdata/renamed", "testdata/renamed-autopilot"} {
		t.Run(folder, func(t *testing.T) {
			got := withoutSchemas(render(t, folder))
			golden := filepath.Join("testdata", filepath.Base(folder)+".golden.yaml")
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("deploy/%s is rendered otherwise than %s has it; if it is meant to be, go test ./deploy -update", folder, golden)
			}
		})
	}
}

// withoutSchemas cuts the specs of definitions, which are made from api/ and as long as all else
// together.
func withoutSchemas(manifests []byte) []byte {
	documents := bytes.Split(manifests, []byte("\n---\n"))
	for i, d := range documents {
		if bytes.Contains(d, []byte("\nkind: CustomResourceDefinition\n")) {
			documents[i], _, _ = bytes.Cut(d, []byte("\nspec:\n"))
		}
	}
	return bytes.Join(documents, []byte("\n---\n"))
}

// The agent takes the configuration that everybody starts from, and its
// environment is what the DaemonSet sets.
func TestConfigurationIsTaken(t *testing.T) {
	if _, err := config.Load("base/agent.yaml"); err != nil {
		t.Error(err)
	}
}

// daemonSet is the agent's, strictly read.
func daemonSet(t *testing.T) appsv1.DaemonSet {
	t.Helper()
	content, err := os.ReadFile("base/daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var d appsv1.DaemonSet
	if err := yaml.UnmarshalStrict(content, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// Metrics are for Prometheus alone: the policy is about the agent's pods, and opens no
// port but theirs.
func TestNetworkPolicy(t *testing.T) {
	content, err := os.ReadFile("base/network-policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var policy networkingv1.NetworkPolicy
	if err := yaml.UnmarshalStrict(content, &policy); err != nil {
		t.Fatal(err)
	}
	d := daemonSet(t)
	selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
	if err != nil || !selector.Matches(labels.Set(d.Spec.Template.Labels)) || policy.Namespace != d.Namespace {
		t.Errorf("it is not about the agent's pods: %v, %v", selector, err)
	}
	var opened []string
	for _, rule := range policy.Spec.Ingress {
		if len(rule.Ports) != 1 || len(rule.From) == 0 {
			t.Fatalf("it opens %+v", rule)
		}
		port := rule.Ports[0].Port.StrVal
		opened = append(opened, port)
		if !slices.ContainsFunc(d.Spec.Template.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool { return p.Name == port }) {
			t.Errorf("it opens the port %q, which the agent has not", port)
		}
		for _, from := range rule.From {
			if from.IPBlock != nil || !chosen(from.NamespaceSelector) && (port == "metrics" || !chosen(from.PodSelector)) {
				t.Errorf("port %s: it lets in %+v", port, from)
			}
			if port == contract.NodeAPIPort && from.NamespaceSelector != nil {
				t.Errorf("port %s: it lets in other namespaces' pods: %+v", port, from)
			}
		}
	}
	if want := []string{contract.NodeAPIPort, "metrics"}; !slices.Equal(opened, want) {
		t.Errorf("it opens %q, want %q", opened, want)
	}
}

// chosen reports whether a selector chooses some and not all.
func chosen(s *metav1.LabelSelector) bool {
	return s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0
}

// privileges are what a pod has of the host beyond any other pod, and whether it can only
// read it.
func privileges(pod corev1.PodSpec) map[string]bool {
	given := make(map[string]bool)
	for name, has := range map[string]bool{"hostPID": pod.HostPID, "hostIPC": pod.HostIPC, "hostNetwork": pod.HostNetwork} {
		if has {
			given[name] = false
		}
	}
	containers := slices.Concat(pod.InitContainers, pod.Containers)
	for _, c := range containers {
		if s := c.SecurityContext; s != nil && s.Privileged != nil && *s.Privileged {
			given["privileged"] = false
		}
	}
	for _, v := range pod.Volumes {
		if v.HostPath != nil {
			given[v.HostPath.Path] = !slices.ContainsFunc(containers, func(c corev1.Container) bool {
				return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == v.Name && !m.ReadOnly })
			})
		}
	}
	return given
}

// Each part of the host that the agent is given, and each right that makes it more than
// any container, has its reason in docs/rights.md, and what fails without it; what it
// is not given has none.
func TestPrivilegesHaveReasons(t *testing.T) {
	rights, err := os.ReadFile("../docs/rights.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(rights), "\n## What the agent may do, and why\n")
	text, _, _ = strings.Cut(text, "\n## ")
	given := privileges(daemonSet(t).Spec.Template.Spec)
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (.*) \\| (.*) \\|$").FindAllStringSubmatch(text, -1) {
		what, why, without := row[1], row[2], row[3]
		readOnly, has := given[what]
		switch {
		case !has:
			t.Errorf("docs/rights.md has a row for %s, which the DaemonSet does not have, or a second one", what)
		case len(why) < 20 || len(without) < 10:
			t.Errorf("docs/rights.md says of %s: %q, and without it: %q", what, why, without)
		case strings.Contains(why, "Read-only") != readOnly:
			t.Errorf("%s is mounted read-only: %v; docs/rights.md says %q", what, readOnly, why)
		}
		delete(given, what)
	}
	for what := range given {
		t.Errorf("docs/rights.md has no row for %s", what)
	}
	pod := daemonSet(t).Spec.Template.Spec
	if c := pod.Containers[0].SecurityContext; c.ReadOnlyRootFilesystem == nil || !*c.ReadOnlyRootFilesystem {
		t.Error("the agent needs no root filesystem that it can write to")
	}
}

// What `make image` makes is what the manifests ask for, and nobody else can have an
// image of that name: RFC 2606 keeps names that end in .invalid from being registered.
func TestImageName(t *testing.T) {
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(makefile), "\nIMAGE ?= "+image+"\n") {
		t.Errorf("the Makefile does not say IMAGE ?= %s", image)
	}
	if registry, _, _ := strings.Cut(image, "/"); !strings.HasSuffix(registry, ".invalid") {
		t.Errorf("%s could be pulled from %s", image, registry)
	}
	for _, c := range []struct {
		where string
		spec  corev1.PodSpec
	}{{"base", daemonSet(t).Spec.Template.Spec}, {"examples", example(t).pod.Spec}} {
		got := c.spec.Containers[0]
		if got.Image != image {
			t.Errorf("deploy/%s has the image %s, want %s", c.where, got.Image, image)
		}
		if got.ImagePullPolicy != corev1.PullIfNotPresent {
			t.Errorf("deploy/%s pulls %q, want IfNotPresent: the image is imported", c.where, got.ImagePullPolicy)
		}
	}
}

// The example brings what it mentions, and its VM's specification is a good one.
func TestExampleIsWhole(t *testing.T) {
	e := example(t)
	for _, v := range e.pod.Spec.Volumes {
		if claim := v.PersistentVolumeClaim; claim != nil && !e.claims[claim.ClaimName] {
			t.Errorf("the pod mounts the claim %s, and deploy/examples has the claims %v", claim.ClaimName, e.claims)
		}
		if config := v.ConfigMap; config != nil && config.Name != e.config.Name {
			t.Errorf("the pod mounts the ConfigMap %s, and deploy/examples has %s", config.Name, e.config.Name)
		}
	}
	s, err := spec.Parse([]byte(e.config.Data["vm.yaml"]), "vm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	mounted := slices.ContainsFunc(e.pod.Spec.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.MountPath == filepath.Dir(s.GetDisks()[0].GetPath())
	})
	if !mounted {
		t.Errorf("the disk %s is on none of the pod's volumes", s.GetDisks()[0].GetPath())
	}
}

// vmExample is what the example's files have, strictly read.
type vmExample struct {
	pod    corev1.Pod
	config corev1.ConfigMap
	claims map[string]bool
}

func example(t *testing.T) vmExample {
	t.Helper()
	e := vmExample{claims: map[string]bool{}}
	for _, file := range []string{"examples/disk.yaml", "examples/vm-pod.yaml"} {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(string(content), "\n---\n") {
			var kind metav1.TypeMeta
			var claim corev1.PersistentVolumeClaim
			into := map[string]any{"Pod": &e.pod, "ConfigMap": &e.config, "PersistentVolumeClaim": &claim, "Job": new(batchv1.Job)}
			if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if err := yaml.UnmarshalStrict([]byte(document), into[kind.Kind]); err != nil {
				t.Fatalf("%s: %s: %v", file, kind.Kind, err)
			}
			e.claims[claim.Name] = claim.Name != ""
		}
	}
	return e
}
