package servertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/vmlet/vmlet/autopilot/catalog"
	"github.com/vmlet/vmlet/autopilot/facts"
	"github.com/vmlet/vmlet/autopilot/rbac"
)

// TestAnchors: the autopilot stays on when the golden configuration makes the object that is the
// anchor from then on, and an object of a higher kind takes over. It does not make that object again
// when somebody deletes it.
func TestAnchors(t *testing.T) {
	s := start(t)
	f := two()
	f["metadata.yaml"] += "- {name: golden, path: active/golden.yaml.tpl, phase: 0, install: always, component: KubeVirt, reconcile_order: 0}\n"
	c, err := catalog.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	f["active/golden.yaml.tpl"] = c.Named("platform-golden-config").Text
	f["active/b.yaml.tpl"] = configMap("b", `key: {{ .Platform.Kind }}, name: {{ .HCO.Name }}, value: {{ annotation "value" | toJson }}`)
	a := s.autopilot(t, f)
	a.anchored(`"true"`)
	a.annotate("vmlet-platform", "value", "x")
	kubeVirts := a.api.Resource(facts.KubeVirts()).Namespace(a.namespace)
	var deletes atomic.Bool
	a.runAs(spied(s.config, "kubevirts", func(object string) {
		if deletes.Load() {
			_ = kubeVirts.Delete(context.Background(), object, metav1.DeleteOptions{})
		}
	}))
	a.hasData("b", "key", "ConfigMap")
	a.hasData("b", "name", "kubevirt")
	s.define("kubevirt.io", "KubeVirt", "kubevirts", "Namespaced", "v1")
	a.hasData("b", "key", "KubeVirt")
	s.define("hco.kubevirt.io", "HyperConverged", "hyperconvergeds", "Namespaced", "v1beta1")
	a.create("hco.kubevirt.io/v1beta1", "HyperConverged", a.namespace, "hco", map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{"platform.kubevirt.io/autopilot": "true"}}})
	a.hasData("b", "key", "HyperConverged")
	a.hasData("b", "name", "hco")
	a.said("InvalidAnnotation", "HyperConverged "+a.namespace+"/hco and ConfigMap "+a.namespace+"/vmlet-platform")
	a.undefine("hyperconvergeds.hco.kubevirt.io")
	a.hasData("b", "key", "KubeVirt")

	change := func(patch string) {
		t.Helper()
		if _, err := kubeVirts.Patch(t.Context(), "kubevirt", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	change(`{"metadata": {"annotations": {"platform.kubevirt.io/autopilot": "true"}}}`)
	a.delete("v1", "ConfigMap", "vmlet-platform") // of which the golden configuration makes the KubeVirt object
	a.hasData("b", "value", "")
	deletes.Store(true)
	change(`{"metadata": {"labels": null}}`)
	a.said("ApplyFailed", "KubeVirt")
	if _, err := kubeVirts.Get(t.Context(), "kubevirt", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the KubeVirt object was made again: %v", err)
	}
}

// TestRights: the whole catalogue is applied by the ServiceAccount with the generated roles, and no
// right is missing.
func TestRights(t *testing.T) {
	s := start(t)
	c, err := catalog.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	a := &autopilot{server: s, t: t, namespace: "vmlet", files: make(fstest.MapFS), catalog: c}
	for _, name := range []string{"vmlet", "metallb-system", "openshift-mtv", "openshift-kube-descheduler-operator"} {
		a.create("v1", "Namespace", "", name, nil)
	}
	kinds := map[schema.GroupKind][]string{{Group: "kubevirt.io", Kind: "KubeVirt"}: {"v1"}}
	for _, x := range c.Assets {
		if !facts.BuiltIn(x.Kind) && !slices.Contains(kinds[x.Kind.GroupKind()], x.Kind.Version) {
			kinds[x.Kind.GroupKind()] = append(kinds[x.Kind.GroupKind()], x.Kind.Version)
		}
		for _, r := range x.Reads {
			of := schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
			if !facts.BuiltIn(of) && !slices.Contains(kinds[of.GroupKind()], r.Version) {
				kinds[of.GroupKind()] = append(kinds[of.GroupKind()], r.Version)
			}
		}
	}
	for of, versions := range kinds {
		if of.Kind != "HyperConverged" {
			plural := facts.Resource(of.WithVersion("v1")).Resource
			o := crd(of.Group, of.Kind, plural, scopeOf(c, of), versions...)
			o["metadata"] = map[string]any{"annotations": map[string]any{"api-approved.kubernetes.io": "https://github.com/kubernetes-csi/external-snapshotter"}}
			s.create("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", plural+"."+of.Group, o)
		}
	}
	defined := func(name, group, kind string) {
		s.define(group, kind, name, "Namespaced", "v1")
	}
	for _, x := range c.Assets {
		if plural, group, is := strings.Cut(x.GateCRD, "."); is && kinds[kindOf(kinds, x.GateCRD)] == nil {
			defined(plural, group, "Gate"+plural)
		}
	}
	a.fixtures()
	text, err := rbac.Generate(c, "vmlet")
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(text), "---\n") {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			t.Fatal(err)
		}
		u := &unstructured.Unstructured{Object: o}
		s.create(u.GetAPIVersion(), u.GetKind(), u.GetNamespace(), u.GetName(), o)
	}
	annotations := map[string]any{"platform.kubevirt.io/autopilot": "true", "platform.kubevirt.io/feature-gates": "CPUManager",
		"platform.kubevirt.io/metallb-addresses": "192.0.2.0/24, 198.51.100.0/24", "platform.kubevirt.io/vfio-pci-ids": "10de:1eb8"}
	for _, x := range c.Assets {
		for _, condition := range x.Conditions {
			if condition.Type == catalog.ConditionAnnotation && condition.Value != "" {
				annotations[condition.Key] = condition.Value
			}
		}
	}
	a.create("v1", "ConfigMap", "vmlet", "vmlet-platform", map[string]any{"metadata": map[string]any{"annotations": annotations}})
	as := rest.CopyConfig(s.config)
	as.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:vmlet:vmlet-autopilot", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:vmlet", "system:authenticated"}}
	metrics, _ := a.runAs(as)
	for _, x := range c.Assets {
		if x.Kind.Kind == "HyperConverged" {
			continue
		}
		a.until("asset "+x.Name+" is applied", func() error {
			if n := metric(t, metrics, "asset_apply_total", x.Name); n < 1 {
				return fmt.Errorf("it was applied %v times", n)
			}
			return nil
		})
	}
	// Drift is put back by what is followed: a watch by name is allowed, too.
	a.merge("ConfigMap", "vmlet-dashboard", "data: {vmlet.json: theirs}")
	a.until("drift is put back", func() error {
		if value := a.data("vmlet-dashboard", "vmlet.json"); value == "theirs" || value == "" {
			return errors.New("it is not")
		}
		return nil
	})
	a.annotate("vmlet-platform", "paused-resources", "ConfigMap/vmlet/vmlet-dashboard")
	a.shows(metrics, 1, "paused_resources", "vmlet-dashboard")
	a.failuresOf(metrics, c)
}

// failuresOf checks that no asset of a catalogue has failed.
func (a *autopilot) failuresOf(metrics *prometheus.Registry, c *catalog.Catalog) {
	a.t.Helper()
	for _, x := range c.Assets {
		if n := metric(a.t, metrics, "asset_reconcile_errors_total", x.Name); n > 0 {
			a.t.Errorf("asset %s failed %v times:\n%s", x.Name, n, strings.Join(a.events(), "\n"))
		}
	}
}

func kindOf(kinds map[schema.GroupKind][]string, crd string) schema.GroupKind {
	for of := range kinds {
		if facts.Resource(of.WithVersion("v1")).Resource+"."+of.Group == crd {
			return of
		}
	}
	return schema.GroupKind{}
}

// scopeOf is that of a kind by the asset that has it: with a namespace or without.
func scopeOf(c *catalog.Catalog, of schema.GroupKind) string {
	for _, x := range c.Assets {
		if x.Kind.GroupKind() == of && x.NamespaceText == "" {
			return "Cluster"
		}
	}
	if of.Kind == "VolumeSnapshotClass" || of.Kind == "StorageProfile" {
		return "Cluster"
	}
	return "Namespaced"
}

// fixtures are the objects that templates look for.
func (a *autopilot) fixtures() {
	a.create("storage.k8s.io/v1", "StorageClass", "", "default", map[string]any{"provisioner": "csi.example.com",
		"metadata": map[string]any{"annotations": map[string]any{"storageclass.kubernetes.io/is-default-class": "true"}}})
	a.create("storage.k8s.io/v1", "CSIDriver", "", "csi.example.com", map[string]any{"spec": map[string]any{}})
	a.create("v1", "Namespace", "", "openshift-workload-availability", nil)
	a.create("self-node-remediation.medik8s.io/v1alpha1", "SelfNodeRemediationTemplate", "openshift-workload-availability", "self-node-remediation-automatic-strategy-template", nil)
	node := a.create("v1", "Node", "", "gpu", map[string]any{"metadata": map[string]any{"labels": map[string]any{
		"node.vmlet.io/numa-nodes": "2", "feature.node.kubernetes.io/pci-10de.present": "true", "node.vmlet.io/hugepages-2Mi": "1",
		"feature.node.kubernetes.io/iommu-enabled": "true", "feature.node.kubernetes.io/usb-ff_1050_0407.present": "true"}}})
	patch, err := json.Marshal(map[string]any{"status": map[string]any{
		"allocatable": map[string]any{"devices.kubevirt.io/kvm": "1k"}, "capacity": map[string]any{"devices.kubevirt.io/kvm": "1k"}}})
	if err == nil {
		_, err = a.api.Resource(facts.Nodes()).Patch(a.t.Context(), node.GetName(), "application/merge-patch+json", patch, metav1.PatchOptions{}, "status")
	}
	if err != nil {
		a.t.Fatal(err)
	}
}
