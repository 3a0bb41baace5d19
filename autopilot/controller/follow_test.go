package controller

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/vmlet/vmlet/autopilot/facts"
)

// TestChangesThatCount: which changes of an object have anything looked at.
func TestChangesThatCount(t *testing.T) {
	kubeVirts := stripFor(facts.KubeVirts())
	for name, c := range map[string]struct {
		strip         func(*unstructured.Unstructured)
		before, after string
		want          bool
	}{
		"nothing":                         {withoutStatus, "{metadata: {resourceVersion: '1'}}", "{metadata: {resourceVersion: '2'}}", false},
		"an asset's status":               {withoutStatus, "{status: {a: 1}}", "{status: {a: 2}}", false},
		"an asset's spec":                 {withoutStatus, "{spec: {a: 1}}", "{spec: {a: 2}}", true},
		"an asset's annotation":           {withoutStatus, "{metadata: {annotations: {a: '1'}}}", "{metadata: {}}", true},
		"the platform's status":           {kubeVirts, "{kind: KubeVirt, status: {a: 1}}", "{kind: KubeVirt}", false},
		"the platform's annotation":       {kubeVirts, "{kind: KubeVirt}", "{kind: KubeVirt, metadata: {annotations: {a: '1'}}}", true},
		"a node's heartbeat":              {stripFor(facts.Nodes()), "{status: {conditions: [{a: 1}]}}", "{status: {conditions: [{a: 2}]}}", false},
		"a node's devices":                {stripFor(facts.Nodes()), "{status: {allocatable: {x: '1'}}}", "{status: {allocatable: {x: '2'}}}", true},
		"a node's label":                  {stripFor(facts.Nodes()), "{metadata: {labels: {a: '1'}}}", "{metadata: {labels: {a: '2'}}}", true},
		"a node is cordoned":              {stripFor(facts.Nodes()), "{spec: {unschedulable: true}}", "{spec: {}}", false},
		"a definition's schema":           {stripFor(facts.CRDs()), "{spec: {versions: [{name: v1, schema: {a: 1}}]}}", "{spec: {versions: [{name: v1}]}}", false},
		"a definition's versions":         {stripFor(facts.CRDs()), "{spec: {versions: [{name: v1, served: true}]}}", "{spec: {versions: [{name: v1, served: false}]}}", true},
		"a definition that is ready":      {stripFor(facts.CRDs()), "{spec: {versions: []}}", "{spec: {versions: []}, status: {conditions: [{type: Established}]}}", true},
		"a namespace's label":             {stripFor(facts.Namespaces()), "{metadata: {labels: {a: '1'}}}", "{metadata: {}}", false},
		"a namespace that is going":       {stripFor(facts.Namespaces()), "{metadata: {}}", "{metadata: {deletionTimestamp: '2026-01-01T00:00:00Z'}}", true},
		"the data of the ConfigMap":       {stripFor(schema.GroupVersionResource{}), "{kind: ConfigMap, data: {a: x}}", "{kind: ConfigMap}", true},
		"who owns a field of an object":   {withoutStatus, "{metadata: {managedFields: [{manager: a}]}}", "{metadata: {managedFields: []}}", false},
		"an object that is being deleted": {withoutStatus, "{metadata: {}}", "{metadata: {deletionTimestamp: '2026-01-01T00:00:00Z'}}", true},
	} {
		var both [2]*unstructured.Unstructured
		for i, text := range []string{c.before, c.after} {
			both[i] = &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(text), &both[i].Object); err != nil {
				t.Fatal(err)
			}
			if _, has := both[i].Object["metadata"]; !has {
				both[i].Object["metadata"] = map[string]any{}
			}
			c.strip(both[i])
		}
		if got := !same(both[0], both[1]); got != c.want {
			t.Errorf("%s counts: %v, want %v", name, got, c.want)
		}
	}
}
