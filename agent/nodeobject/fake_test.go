package nodeobject

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/vmlet/vmlet/agent/kube"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// fakeNode is a Node under server-side apply, as far as it matters here: who
// changes a field has it, and an apply that would change another's is refused.
// TestNodeObject (package agent) shows that the real one does the same.
type fakeNode struct {
	uid     string
	version int
	values  map[field]string
	owners  map[field]map[string]bool
	writes  int
	// fail, if set, answers in place of the API server.
	fail error
	// after, if set, is called after each write: somebody else.
	after func(*fakeNode)
}

func newFakeNode() *fakeNode {
	return &fakeNode{uid: "u1", version: 100, values: map[field]string{}, owners: map[field]map[string]bool{}}
}

// set is somebody's update; an empty value takes the field away.
func (n *fakeNode) set(manager string, f field, value string) {
	n.version++
	if value == "" {
		delete(n.values, f)
		delete(n.owners, f)
		return
	}
	if old, there := n.values[f]; !there || old != value {
		n.owners[f] = map[string]bool{manager: true}
	}
	n.values[f] = value
}

func (n *fakeNode) apply(_ context.Context, _ *object, p plan) (*object, error) {
	n.writes++
	if n.fail != nil {
		return nil, n.fail
	}
	var causes []metav1.StatusCause
	for f, value := range p.fields {
		for owner := range n.owners[f] {
			if owner != kube.FieldManager && n.values[f] != value {
				causes = append(causes, metav1.StatusCause{Type: metav1.CauseTypeFieldManagerConflict, Field: ".metadata." + f.kind + "." + f.key})
			}
		}
	}
	if causes != nil {
		return nil, apierrors.NewApplyConflict(causes, "conflict")
	}
	n.version++
	for f, owners := range n.owners {
		if _, named := p.fields[f]; !named && owners[kube.FieldManager] {
			delete(owners, kube.FieldManager)
			if len(owners) == 0 {
				delete(n.values, f)
				delete(n.owners, f)
			}
		}
	}
	for f, value := range p.fields {
		n.values[f] = value
		if n.owners[f] == nil {
			n.owners[f] = map[string]bool{}
		}
		n.owners[f][kube.FieldManager] = true
	}
	o := n.object()
	if n.after != nil {
		n.after(n)
	}
	return o, nil
}

func (n *fakeNode) object() *object {
	o := &object{ObjectMeta: metav1.ObjectMeta{
		Name: "n1", UID: types.UID(n.uid), ResourceVersion: strconv.Itoa(n.version), Labels: map[string]string{}, Annotations: map[string]string{},
	}}
	managed := map[string]map[string]map[string]any{}
	for f, value := range n.values {
		if f.kind == labelField {
			o.Labels[f.key] = value
		} else {
			o.Annotations[f.key] = value
		}
		for owner := range n.owners[f] {
			if managed[owner] == nil {
				managed[owner] = map[string]map[string]any{}
			}
			if managed[owner]["f:"+f.kind] == nil {
				managed[owner]["f:"+f.kind] = map[string]any{".": map[string]any{}}
			}
			managed[owner]["f:"+f.kind]["f:"+f.key] = map[string]any{}
		}
	}
	for _, owner := range slices.Sorted(maps.Keys(managed)) {
		raw, err := json.Marshal(map[string]any{"f:metadata": managed[owner]})
		if err != nil {
			panic(err)
		}
		operation := metav1.ManagedFieldsOperationUpdate
		if owner == kube.FieldManager {
			operation = metav1.ManagedFieldsOperationApply
		}
		o.ManagedFields = append(o.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: owner, Operation: operation, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(string(raw)),
		})
	}
	return o
}

// bench is a reconciler over a fake Node, with a clock of its own.
type bench struct {
	*reconciler
	node  *fakeNode
	clock time.Time
	told  []string // reasons of events
}

func newBench(t *testing.T) *bench {
	b := &bench{reconciler: newReconciler(slog.New(slog.NewTextHandler(t.Output(), nil))), node: newFakeNode(), clock: time.Unix(1_800_000_000, 0)}
	b.reconciler.heartbeat = true
	b.reconciler.now = func() time.Time { return b.clock }
	b.reconciler.write = b.node.apply
	b.reconciler.event = func(_, reason, _ string) { b.told = append(b.told, reason) }
	b.reconciler.standing = Standing{Known: true, Sure: true}
	b.facts = facts(map[string]string{"node.vmlet.io/vmm": "qemu", "kubevirt.io/realtime": "true"})
	return b
}

func facts(labels map[string]string) *Facts {
	yes := true
	return &Facts{Labels: labels, Schedulable: &yes, CPUManager: new(bool)}
}

// look is a step with the Node as it is now.
func (b *bench) look() time.Duration {
	b.reconciler.node = b.node.object()
	return b.step(context.Background())
}

// wants fails unless the Node has these labels and no others.
func (b *bench) wants(t *testing.T, want map[string]string) {
	t.Helper()
	if got := b.node.object().Labels; !maps.Equal(got, want) {
		t.Fatalf("labels %v, want %v", got, want)
	}
}

// wrote fails unless there were so many writes since the last time.
func (b *bench) wrote(t *testing.T, want int) {
	t.Helper()
	if b.node.writes != want {
		t.Fatalf("%d writes, want %d", b.node.writes, want)
	}
	b.node.writes = 0
}

func forbidden() error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n1", fmt.Errorf("no"))
}
