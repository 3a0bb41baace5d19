package settings

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// kv is a KubeVirt object that was made some seconds after noon.
func kv(name string, seconds int) kubevirtv1.KubeVirt {
	o := kubevirtv1.KubeVirt{}
	o.Namespace, o.Name = "kubevirt", name
	o.CreationTimestamp = metav1.NewTime(noon.Add(time.Duration(seconds) * time.Second))
	return o
}

func deleted(o kubevirtv1.KubeVirt) kubevirtv1.KubeVirt {
	o.DeletionTimestamp = &metav1.Time{Time: noon}
	o.Finalizers = []string{"example.com/wait"}
	return o
}

func elsewhere(o kubevirtv1.KubeVirt) kubevirtv1.KubeVirt {
	o.Namespace = "team"
	return o
}

func TestChosen(t *testing.T) {
	for name, c := range map[string]struct {
		all  []kubevirtv1.KubeVirt
		want string // empty: none
	}{
		"none":                          {nil, ""},
		"one":                           {[]kubevirtv1.KubeVirt{kv("a", 1)}, "a"},
		"the oldest":                    {[]kubevirtv1.KubeVirt{kv("a", 2), kv("b", 1), kv("c", 3)}, "b"},
		"not one that is being deleted": {[]kubevirtv1.KubeVirt{deleted(kv("a", 1)), kv("b", 2)}, "b"},
		"none but deleted":              {[]kubevirtv1.KubeVirt{deleted(kv("a", 1))}, ""},
		"not an older one elsewhere":    {[]kubevirtv1.KubeVirt{elsewhere(kv("a", 1)), kv("b", 2)}, "b"},
		"none but elsewhere":            {[]kubevirtv1.KubeVirt{elsewhere(kv("a", 1))}, ""},
		"by name in one second":         {[]kubevirtv1.KubeVirt{kv("b", 1), kv("a", 1)}, "a"},
	} {
		got := ""
		if chosen := Chosen(c.all, "kubevirt"); chosen != nil {
			got = chosen.Name
		}
		if got != c.want {
			t.Errorf("%s: %q is chosen, want %q", name, got, c.want)
		}
	}
}

// TestConfigurationFollowsTheObject: each question is answered by the object as it is now.
func TestConfigurationFollowsTheObject(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := kubevirtv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).Build()
	settings := Settings{From: c, Namespace: "kubevirt"}
	model := func() string {
		t.Helper()
		got, err := settings.Configuration(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return got.CPUModel
	}
	object := kv("kubevirt", 0)
	object.Spec.Configuration.CPUModel = "Haswell"
	var got []string
	other := elsewhere(kv("other", -1))
	other.Spec.Configuration.CPUModel = "Nehalem"
	if err := c.Create(t.Context(), &other); err != nil {
		t.Fatal(err)
	}
	got = append(got, model())
	if err := c.Create(t.Context(), &object); err != nil {
		t.Fatal(err)
	}
	got = append(got, model())
	object.Spec.Configuration.CPUModel = "EPYC"
	if err := c.Update(t.Context(), &object); err != nil {
		t.Fatal(err)
	}
	got = append(got, model())
	if err := c.Delete(t.Context(), &object); err != nil {
		t.Fatal(err)
	}
	got = append(got, model())
	want := [4]string{"host-model", "Haswell", "EPYC", "host-model"}
	if [4]string(got) != want {
		t.Errorf("CPU models without an object, with it, changed and deleted: %q, want %q", got, want)
	}
}

// TestUnreadableConfigurationIsAnError: nothing is decided by defaults that the cluster may
// have changed.
func TestUnreadableConfigurationIsAnError(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).Build()
	if got, err := (Settings{From: c}).Configuration(t.Context()); err == nil {
		t.Errorf("a reader that does not know the kind: %+v and no error", got)
	}
}
