// Package rbac makes the autopilot's roles of its catalogue: what it may do is what its assets, their
// look-ups and its tombstones need. Start reading at Generate.
package rbac

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/vmlet/vmlet/autopilot/anchor"
	"github.com/vmlet/vmlet/autopilot/catalog"
	"github.com/vmlet/vmlet/autopilot/facts"
	"github.com/vmlet/vmlet/autopilot/render"
)

// Name is that of the roles, their bindings, the ServiceAccount and the lease.
const Name = "vmlet-autopilot"

// right is on a resource; without names, on all objects of it.
type right struct {
	of    schema.GroupResource
	verbs string // separated by commas, sorted
	named bool
}

// rights are those of a role, with the names of those that have any.
type rights map[right]map[string]bool

func (r rights) add(of schema.GroupResource, verbs string, names ...string) {
	key := right{of, verbs, len(names) > 0}
	if r[key] == nil {
		r[key] = make(map[string]bool)
	}
	for _, name := range names {
		r[key][name] = true
	}
}

// Verbs. The autopilot follows its objects by their names, and applies them by patches, which may
// create them.
const (
	keep   = "create,get,list,patch,watch"
	follow = "get,list,watch"
	look   = "get,list"
	remove = "delete,get"
	emit   = "create,patch"
)

// Generate makes the roles and their bindings for an autopilot in a namespace.
func Generate(c *catalog.Catalog, namespace string) ([]byte, error) {
	cluster, own := fixed()
	var faults []error
	for _, a := range c.Assets {
		faults = append(faults, asset(a, namespace, cluster, own))
	}
	for _, t := range c.Tombstones {
		of := facts.Resource(t.Object.GroupVersionKind()).GroupResource()
		if t.Object.GetNamespace() == namespace {
			own.add(of, remove, t.Object.GetName())
		} else {
			cluster.add(of, remove, t.Object.GetName())
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return write(namespace, cluster, own)
}

// fixed are the rights that depend on no asset, in the cluster and in the autopilot's namespace.
func fixed() (cluster, own rights) {
	cluster, own = make(rights), make(rights)
	cluster.add(facts.CRDs().GroupResource(), follow) // which kinds there are
	cluster.add(facts.Nodes().GroupResource(), follow)
	cluster.add(facts.Namespaces().GroupResource(), follow)
	cluster.add(schema.GroupResource{Group: "events.k8s.io", Resource: "events"}, emit)
	// Platform objects, which say what is wanted; that one is paused is written on them.
	cluster.add(facts.KubeVirts().GroupResource(), keep)
	cluster.add(facts.Kinds{}.HyperConverged().GroupResource(), "get,list,patch,watch")
	own.add(facts.ConfigMaps().GroupResource(), "get,list,patch,watch", anchor.ConfigMapName)
	leases := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	own.add(schema.GroupResource{Resource: "events"}, emit) // who leads
	own.add(leases, "create")
	own.add(leases, "get,update", Name)
	return cluster, own
}

// contexts are facts of clusters that differ in what an object's name may depend on.
func contexts(namespace string) (all []facts.Facts) {
	object := func(version, kind, namespace, name string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: make(map[string]any)}
		o.SetAPIVersion(version)
		o.SetKind(kind)
		o.SetNamespace(namespace)
		o.SetName(name)
		return o
	}
	hyper := object("hco.kubevirt.io/v1beta1", anchor.KindHyperConverged, "kubevirt-hyperconverged", "kubevirt-hyperconverged")
	kube := object("kubevirt.io/v1", anchor.KindKubeVirt, "other", "another")
	config := object("v1", anchor.KindConfigMap, namespace, anchor.ConfigMapName)
	for _, a := range []*anchor.Anchor{
		anchor.Choose(hyper, nil, nil, namespace), anchor.Choose(nil, kube, nil, namespace), anchor.Choose(nil, nil, config, namespace),
	} {
		all = append(all, facts.Facts{Anchor: a, Namespace: namespace, Kinds: facts.AllKinds()})
	}
	return all
}

// asset adds the rights of one: on its object alone where the name is the same in every context.
func asset(a *catalog.Asset, namespace string, cluster, own rights) error {
	where, names := make(map[string]bool), make(map[string]bool)
	for _, f := range contexts(namespace) {
		ns, name, err := render.Identity(a, f)
		if err != nil {
			return fmt.Errorf("asset %s: its name is not known before it is rendered: %w", a.Name, err)
		}
		where[ns], names[name] = true, true
	}
	of := facts.Resource(a.Kind).GroupResource()
	switch {
	case a.Kind.Kind == anchor.KindHyperConverged: // never made: fixed has its rights
	case len(names) > 1:
		cluster.add(of, keep)
	case len(where) == 1 && where[namespace]:
		own.add(of, keep, slices.Collect(maps.Keys(names))...)
	default:
		// Not by a Role: the namespace of an operator that is not there can't have one.
		cluster.add(of, keep, slices.Collect(maps.Keys(names))...)
	}
	for _, r := range a.Reads {
		of := facts.Resource(schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}).GroupResource()
		if r.Namespace == namespace {
			own.add(of, look)
		} else {
			cluster.add(of, look)
		}
	}
	return nil
}

// rules are sorted, so that the same catalogue makes the same file. A right on named objects is left
// out where there is the same one on all.
func (r rights) rules() (rules []rbacv1.PolicyRule) {
	for key, names := range r {
		if _, all := r[right{key.of, key.verbs, false}]; all && key.named {
			continue
		}
		rules = append(rules, rbacv1.PolicyRule{
			APIGroups: []string{key.of.Group}, Resources: []string{key.of.Resource},
			ResourceNames: slices.Sorted(maps.Keys(names)), Verbs: strings.Split(key.verbs, ","),
		})
	}
	slices.SortFunc(rules, func(a, b rbacv1.PolicyRule) int {
		return cmp.Or(slices.Compare(a.APIGroups, b.APIGroups), slices.Compare(a.Resources, b.Resources), slices.Compare(a.Verbs, b.Verbs), slices.Compare(a.ResourceNames, b.ResourceNames))
	})
	return rules
}

func write(namespace string, cluster, own rights) ([]byte, error) {
	const group = rbacv1.GroupName
	labels := map[string]string{"app.kubernetes.io/name": Name, "app.kubernetes.io/part-of": "vmlet"}
	meta := metav1.ObjectMeta{Name: Name, Labels: labels}
	here := *meta.DeepCopy()
	here.Namespace = namespace
	of := func(kind string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: group + "/v1", Kind: kind} }
	to := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: Name}}
	out := bytes.NewBufferString("# Made by `make generate-rbac` of autopilot/catalog: don't edit it.\n")
	for i, o := range []any{
		rbacv1.ClusterRole{TypeMeta: of("ClusterRole"), ObjectMeta: meta, Rules: cluster.rules()},
		rbacv1.ClusterRoleBinding{TypeMeta: of("ClusterRoleBinding"), ObjectMeta: meta, Subjects: to, RoleRef: rbacv1.RoleRef{APIGroup: group, Kind: "ClusterRole", Name: Name}},
		rbacv1.Role{TypeMeta: of("Role"), ObjectMeta: here, Rules: own.rules()},
		rbacv1.RoleBinding{TypeMeta: of("RoleBinding"), ObjectMeta: here, Subjects: to, RoleRef: rbacv1.RoleRef{APIGroup: group, Kind: "Role", Name: Name}},
	} {
		text, err := yaml.Marshal(o)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		out.Write(text)
	}
	return out.Bytes(), nil
}
