package installation

import (
	"context"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// TestPluginParts: they are followed by their names alone, and one that goes has vmlet look.
func TestPluginParts(t *testing.T) {
	var kinds []string
	for o, by := range PluginParts("elsewhere") {
		kind, want := o.GetObjectKind().GroupVersionKind().Kind, PluginConfigurationName
		if kind == "Service" || kind == "Secret" {
			want = PluginName
			if _, here := by.Namespaces["elsewhere"]; !here || len(by.Namespaces) != 1 {
				t.Errorf("each %s is followed in %v, want vmlet's namespace", kind, by.Namespaces)
			}
		}
		if !by.Field.Matches(fields.Set{metav1.ObjectNameField: want}) || by.Field.Matches(fields.Set{metav1.ObjectNameField: "other"}) {
			t.Errorf("of each %s that of the name %s is followed, want %s", kind, by.Field, want)
		}
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	if want := []string{"MutatingWebhookConfiguration", "Secret", "Service", "ValidatingWebhookConfiguration"}; !slices.Equal(kinds, want) {
		t.Errorf("the kinds are %v, want %v", kinds, want)
	}

	w := newWorld(t)
	fakes := &informertest.FakeInformers{Scheme: w.Scheme()}
	w.Parts = fakes
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} })
	for _, part := range w.parts(one) {
		if err := part.Start(ctx, queue); err != nil {
			t.Fatal(err)
		}
		if err := part.(source.SyncingSource).WaitForSync(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for o := range PluginParts("elsewhere") {
		informer, err := fakes.FakeInformerFor(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		informer.Delete(o.(metav1.Object))
		if n := queue.Len(); n != 1 {
			t.Errorf("after a %s has gone the queue has %d requests, want 1", o.GetObjectKind().GroupVersionKind().Kind, n)
			continue
		}
		request, _ := queue.Get()
		queue.Done(request)
	}
}
