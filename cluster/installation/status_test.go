package installation

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
)

// kv is a KubeVirt object that was made some seconds after noon.
func kv(name string, second int) *kubevirtv1.KubeVirt {
	o := &kubevirtv1.KubeVirt{}
	o.Namespace, o.Name, o.UID, o.Generation = "elsewhere", name, types.UID("uid of "+name), 3
	o.CreationTimestamp = metav1.NewTime(time.Date(2026, 7, 1, 12, 0, second, 0, time.UTC))
	return o
}

func (w *world) kubevirt(t *testing.T, name string) *kubevirtv1.KubeVirt {
	t.Helper()
	o := &kubevirtv1.KubeVirt{}
	if err := w.Get(t.Context(), client.ObjectKey{Namespace: "elsewhere", Name: name}, o); err != nil {
		t.Fatal(err)
	}
	return o
}

// said is a condition's status, reason and message.
func said(o *kubevirtv1.KubeVirt, kind string) string {
	c := kubevirtv1.FindCondition(o.Status.Conditions, kind)
	if c == nil {
		return ""
	}
	return strings.TrimSpace(string(c.Status) + " " + c.Reason + " " + c.Message)
}

// TestStatus is what tools wait for: kubectl wait --for=condition=Available, phase Deployed.
func TestStatus(t *testing.T) {
	for name, c := range map[string]struct {
		damage                   func(*testing.T, *world)
		before                   string // phase
		phase, available, others string
	}{
		"all programs run": {
			phase: "Deployed", available: "True AllComponentsReady All components are ready.", others: "False AllComponentsReady All components are ready.",
		},
		"no vmlet-api": {
			damage: func(t *testing.T, w *world) { w.remove(t, deployment("my-api", 0)) }, phase: "Deploying",
			available: "False DeploymentInProgress Deployment elsewhere/my-api does not exist",
			others:    "True DeploymentInProgress Deployment elsewhere/my-api does not exist",
		},
		"no agent that works": {
			damage: func(t *testing.T, w *world) {
				w.remove(t, daemonSet(0))
				if err := w.WithWatch.Create(t.Context(), daemonSet(0)); err != nil {
					t.Fatal(err)
				}
			},
			phase: "Deploying", available: "False DeploymentInProgress DaemonSet elsewhere/my-agent has no available pod",
			others: "True DeploymentInProgress DaemonSet elsewhere/my-agent has no available pod",
		},
		"once deployed": {
			damage: func(t *testing.T, w *world) { w.remove(t, daemonSet(0)) }, before: "Deployed", phase: "Deployed",
			available: "False DeploymentInProgress DaemonSet elsewhere/my-agent does not exist",
			others:    "True DeploymentInProgress DaemonSet elsewhere/my-agent does not exist",
		},
	} {
		object := kv("kubevirt", 0)
		object.Status.Phase = c.before
		w := newWorld(t, object)
		if c.damage != nil {
			c.damage(t, w)
		}
		w.reconcile(t)
		got := w.kubevirt(t, "kubevirt")
		if got.Status.Phase != c.phase {
			t.Errorf("%s: the phase is %q, want %q", name, got.Status.Phase, c.phase)
		}
		for kind, want := range map[string]string{
			available: c.available, progressing: c.others, degraded: c.others, created: "True AllResourcesCreated", settingsIgnored: "",
		} {
			if s := said(got, kind); s != want {
				t.Errorf("%s: %s is %q, want %q", name, kind, s, want)
			}
		}
		if s := got.Status; s.ObservedKubeVirtVersion != "v1.9.0" || s.OperatorVersion != "v0.15.0" || *s.ObservedGeneration != 3 || s.DefaultArchitecture != "amd64" {
			t.Errorf("%s: the versions are %q of %q, generation %d, architecture %q", name, s.ObservedKubeVirtVersion, s.OperatorVersion, *s.ObservedGeneration, s.DefaultArchitecture)
		}
		w.expect(t, name+", again") // nothing is written that says nothing new
	}
}

func (w *world) remove(t *testing.T, o client.Object) {
	t.Helper()
	if err := w.WithWatch.Delete(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// TestIgnoredSettingsAreTold: a setting that is accepted and has no effect is in a condition,
// until it is taken out.
func TestIgnoredSettingsAreTold(t *testing.T) {
	object := kv("kubevirt", 0)
	object.Spec.ImageTag = "v1.9.0"
	w := newWorld(t, object)
	w.reconcile(t)
	if got := said(w.kubevirt(t, "kubevirt"), settingsIgnored); !strings.HasPrefix(got, "True NoEffect spec.imageTag: ") {
		t.Errorf("%s is %q, want spec.imageTag in it", settingsIgnored, got)
	}
	now := w.kubevirt(t, "kubevirt")
	now.Spec.ImageTag = ""
	if err := w.WithWatch.Update(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	w.reconcile(t)
	if got := said(w.kubevirt(t, "kubevirt"), settingsIgnored); got != "" {
		t.Errorf("%s is %q without the setting, want none", settingsIgnored, got)
	}
}

// TestSecondKubeVirt: the older object counts, the other one says so, and takes over when the
// first is deleted.
func TestSecondKubeVirt(t *testing.T) {
	first, second := kv("first", 1), kv("a-second", 2)
	w := newWorld(t, first, second)
	w.reconcile(t)
	if got := said(w.kubevirt(t, "a-second"), available); !strings.HasPrefix(got, "False ExistingKubeVirt KubeVirt elsewhere/first is older") {
		t.Errorf("the second one is %q", got)
	}
	if got := w.kubevirt(t, "first").Status.Phase; got != "Deployed" {
		t.Errorf("the first one's phase is %q, want Deployed", got)
	}
	w.expect(t, "again")
	w.remove(t, first)
	w.reconcile(t)
	if got := w.kubevirt(t, "a-second").Status.Phase; got != "Deployed" {
		t.Errorf("the only one's phase is %q, want Deployed", got)
	}
}

// TestKubeVirtOfAnotherNamespace: whoever makes a KubeVirt object in his own namespace, and makes it first,
// configures nothing, and is told so.
func TestKubeVirtOfAnotherNamespace(t *testing.T) {
	others := kv("first", 0)
	others.Namespace = "team"
	others.Spec.Configuration.EvictionStrategy = new(kubevirtv1.EvictionHibernate)
	w := newWorld(t, others)
	w.reconcile(t)
	told := func() string {
		t.Helper()
		if err := w.Get(t.Context(), client.ObjectKeyFromObject(others), others); err != nil {
			t.Fatal(err)
		}
		return said(others, available)
	}
	const want = "False OtherNamespace KubeVirt objects of namespace elsewhere alone configure the cluster"
	if got := told(); !strings.HasPrefix(got, want) {
		t.Errorf("it says %q, want %q", got, want)
	}
	if err := w.WithWatch.Create(t.Context(), kv("own", 60)); err != nil {
		t.Fatal(err)
	}
	w.reconcile(t)
	if got := said(w.kubevirt(t, "own"), available); !strings.HasPrefix(got, "True") {
		t.Errorf("beside an older one elsewhere vmlet's own says %q, want that it is available", got)
	}
	if got := told(); !strings.HasPrefix(got, want) {
		t.Errorf("beside vmlet's own it says %q, want %q", got, want)
	}
}

// TestOneThatCantBeTold: a KubeVirt object of another namespace whose status can't be written leaves that of the one
// that counts up to date.
func TestOneThatCantBeTold(t *testing.T) {
	others := kv("a", 0)
	others.Namespace = "a-team"
	w := newWorld(t, others, kv("own", 60))
	refused := errors.New("a policy of the team's")
	c := interceptor.NewClient(w.WithWatch, interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, part string, o client.Object, p client.Patch, options ...client.SubResourcePatchOption) error {
		if o.GetNamespace() == "a-team" {
			return refused
		}
		return c.SubResource(part).Patch(ctx, o, p, options...)
	}})
	w.Installation.Client = c
	if err := w.writeStatus(t.Context()); !errors.Is(err, refused) {
		t.Errorf("it returns %v, want %v", err, refused)
	}
	if got := said(w.kubevirt(t, "own"), available); !strings.HasPrefix(got, "True") {
		t.Errorf("vmlet's own says %q, want that it is available", got)
	}
}

// TestTransitionTimes: a condition's time is that of its status, not of its words.
func TestTransitionTimes(t *testing.T) {
	w := newWorld(t, kv("kubevirt", 0))
	w.reconcile(t)
	old := metav1.NewTime(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))
	o := w.kubevirt(t, "kubevirt")
	for n := range o.Status.Conditions {
		o.Status.Conditions[n].LastTransitionTime = old
	}
	if err := w.WithWatch.Status().Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	w.remove(t, daemonSet(0))
	w.reconcile(t)
	for kind, kept := range map[string]bool{created: true, available: false, degraded: false} {
		c := kubevirtv1.FindCondition(w.kubevirt(t, "kubevirt").Status.Conditions, kind)
		if got := c.LastTransitionTime.Time.Equal(old.Time); got != kept {
			t.Errorf("%s: its time was kept: %v, want %v", kind, got, kept)
		}
	}
}

func TestMessagesAreBounded(t *testing.T) {
	var all []configuration.Ignored
	for range 1000 {
		all = append(all, configuration.Ignored{Field: "infra", Reason: "ä"})
	}
	if got := sentence(all); len(got) > maxMessage+len("…") || !strings.HasSuffix(got, "…") {
		t.Errorf("it has %d bytes and ends with %q", len(got), got[len(got)-10:])
	}
}
