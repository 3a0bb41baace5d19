package launcher_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	psa "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/launcher"
	"github.com/vmlet/vmlet/cluster/validation"
	"github.com/vmlet/vmlet/contract"
	hypervisors "github.com/vmlet/vmlet/hypervisor/standard"
	vmms "github.com/vmlet/vmlet/vmm/standard"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// manifests are those of all of the cluster half's tests.
func manifests(t testing.TB) []string {
	t.Helper()
	paths, err := filepath.Glob("../testdata/manifests/*.yaml")
	if err != nil || len(paths) < 10 {
		t.Fatalf("%d manifests, %v", len(paths), err)
	}
	return paths
}

// TestGolden compares what each manifest becomes with testdata/golden.
func TestGolden(t *testing.T) {
	for _, manifest := range manifests(t) {
		name := strings.TrimSuffix(filepath.Base(manifest), ".yaml")
		t.Run(name, func(t *testing.T) { golden(t, name, read(t, manifest)) })
	}
	t.Run("configured", func(t *testing.T) {
		in := read(t, "../testdata/manifests/vm-container-disk.yaml")
		in.Configuration = configured()
		golden(t, "configured", in)
	})
}

// configured is a configuration that says something of all that a pod shows.
func configured() configuration.Configuration {
	c := configuration.Default()
	c.UseEmulation = true
	c.CPUAllocationRatio, c.MemoryOvercommit, c.OverheadRatio = 4, 150, 1.5
	c.NodeSelectors = map[string]string{"vms": "yes"}
	c.Placement.NodeSelector = map[string]string{"pool": "vms"}
	c.Placement.Tolerations = []corev1.Toleration{{Key: "vms", Operator: corev1.TolerationOpExists}}
	c.RuntimeClass = "vms"
	c.ImagePullPolicy = corev1.PullAlways
	c.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "vmlet"}, {Name: "registry"}}
	c.SMBIOS.Manufacturer, c.SMBIOS.Version = "Acme", "7"
	c.NoSerialConsoleLog = true
	return c
}

func golden(t *testing.T, name string, in convert.Input) {
	pod, err := launcher.Pod(in)
	if err != nil {
		t.Fatal(err)
	}
	accepted(t, in)
	compare(t, name, pod)
}

// compare compares a pod with its golden file.
func compare(t *testing.T, name string, pod *corev1.Pod) {
	t.Helper()
	restricted(t, pod)
	path := filepath.Join("testdata", "golden", name+".yaml")
	got := render(t, pod)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is another; if that is right, run go test ./cluster/launcher -run Golden -update and look at the difference. Got:\n%s", path, got)
	}
}

// accepted holds a manifest to admission: what has a golden file can be created.
func accepted(t *testing.T, in convert.Input) {
	t.Helper()
	created := in.Instance.DeepCopy()
	created.UID = ""
	faults, _ := validation.Instance(created, nil, validation.Request{
		Configuration: in.Configuration,
		VMMs:          vmms.Registry().Names(),
		Hypervisors:   hypervisors.Registry().Names(),
	})
	for _, fault := range faults {
		t.Errorf("it is refused: %v", fault)
	}
}

// render is specification, preparation and pod as three documents: what the pod is told is
// taken out of its annotations, to be read.
func render(t *testing.T, pod *corev1.Pod) []byte {
	t.Helper()
	var documents [][]byte
	shown := pod.DeepCopy()
	for _, annotation := range []string{contract.AnnotationSpecification, contract.AnnotationPreparation} {
		if shown.Annotations[annotation] == "" {
			continue
		}
		document, err := yaml.JSONToYAML([]byte(shown.Annotations[annotation]))
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, append([]byte("# "+annotation+"\n"), document...))
		shown.Annotations[annotation] = "see above"
	}
	encoded, err := json.Marshal(shown)
	if err != nil {
		t.Fatal(err)
	}
	document, err := yaml.JSONToYAML(encoded)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Join(append(documents, document), []byte("---\n"))
}

// restricted holds a pod to PodSecurity's level restricted, by Kubernetes' own rules.
func restricted(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	level := psa.LevelVersion{Level: psa.LevelRestricted, Version: psa.LatestVersion()}
	for _, result := range evaluator.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec) {
		if !result.Allowed {
			t.Errorf("PodSecurity: %s: %s", result.ForbiddenReason, result.ForbiddenDetail)
		}
	}
}
