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
	corev1 "k8s.io/api/core/v1"
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
	for _, folder := range []string{"base", "monitoring", "metrics-authentication"} {
		t.Run(folder, func(t *testing.T) {
			got := render(t, folder)
			golden := filepath.Join("testdata", folder+".golden.yaml")
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
// any container, has its reason in docs/operations.md, and what fails without it; what it
// is not given has none.
func TestPrivilegesHaveReasons(t *testing.T) {
	operations, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(operations), "\n### What the agent may do, and why\n")
	text, _, _ = strings.Cut(text, "\n## ")
	given := privileges(daemonSet(t).Spec.Template.Spec)
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (.*) \\| (.*) \\|$").FindAllStringSubmatch(text, -1) {
		what, why, without := row[1], row[2], row[3]
		readOnly, has := given[what]
		switch {
		case !has:
			t.Errorf("docs/operations.md has a row for %s, which the DaemonSet does not have, or a second one", what)
		case len(why) < 20 || len(without) < 10:
			t.Errorf("docs/operations.md says of %s: %q, and without it: %q", what, why, without)
		case strings.Contains(why, "Read-only") != readOnly:
			t.Errorf("%s is mounted read-only: %v; docs/operations.md says %q", what, readOnly, why)
		}
		delete(given, what)
	}
	for what := range given {
		t.Errorf("docs/operations.md has no row for %s", what)
	}
	pod := daemonSet(t).Spec.Template.Spec
	if c := pod.Containers[0].SecurityContext; c.ReadOnlyRootFilesystem == nil || !*c.ReadOnlyRootFilesystem {
		t.Error("the agent needs no root filesystem that it can write to")
	}
}
