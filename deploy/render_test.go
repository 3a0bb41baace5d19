package deploy

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/vmlet/vmlet/agent"
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
	// renamed is a kustomization of a user's, with another namespace and a prefix.
	for _, folder := range []string{"base", "monitoring", "metrics-authentication", "testdata/renamed"} {
		t.Run(folder, func(t *testing.T) {
			got := render(t, folder)
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

// The agent takes the configuration that everybody starts from, and its
// environment is what the DaemonSet sets.
func TestConfigurationIsTaken(t *testing.T) {
	if _, err := agent.LoadConfig("base/agent.yaml"); err != nil {
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
	if len(policy.Spec.Ingress) != 1 || len(policy.Spec.Ingress[0].Ports) != 1 || len(policy.Spec.Ingress[0].From) == 0 {
		t.Fatalf("it opens %+v", policy.Spec.Ingress)
	}
	port := policy.Spec.Ingress[0].Ports[0].Port.StrVal
	if !slices.ContainsFunc(d.Spec.Template.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool { return p.Name == port }) || port != "metrics" {
		t.Errorf("it opens the port %q", port)
	}
	for _, from := range policy.Spec.Ingress[0].From {
		if from.NamespaceSelector == nil || len(from.NamespaceSelector.MatchLabels) == 0 {
			t.Errorf("it lets in %+v", from)
		}
	}
}

// Each part of the host that the agent is given, and each right that makes it
// more than any container, has its reason in docs/operations.md.
func TestPrivilegesHaveReasons(t *testing.T) {
	operations, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	pod := daemonSet(t).Spec.Template.Spec
	wanted := []string{"`privileged`", "`hostPID`"}
	for _, v := range pod.Volumes {
		if v.HostPath != nil {
			wanted = append(wanted, "`"+v.HostPath.Path+"`")
		}
	}
	for _, what := range wanted {
		if !strings.Contains(string(operations), "| "+what) {
			t.Errorf("docs/operations.md has no row for %s", what)
		}
	}
	if pod.HostNetwork || pod.HostIPC {
		t.Error("the agent needs neither the host's network nor its IPC")
	}
	if c := pod.Containers[0].SecurityContext; c.ReadOnlyRootFilesystem == nil || !*c.ReadOnlyRootFilesystem {
		t.Error("the agent needs no root filesystem that it can write to")
	}
}
