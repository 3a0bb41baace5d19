package claimwatch

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// TestKubernetes: what is asked of the API server, and what is written.
func TestKubernetes(t *testing.T) {
	own := pod("controller-0", "", nil)
	own.Namespace = "vmlet"
	set := fake.NewClientset(own)
	k := Kubernetes{Core: set.CoreV1(), Namespace: "vmlet", Pod: own.Name}
	ctx := t.Context()

	if err := k.Mark(ctx, "a.7"); err != nil {
		t.Fatal(err)
	}
	marked, err := set.CoreV1().Pods("vmlet").Get(ctx, own.Name, metav1.GetOptions{})
	if err != nil || k.Marked(marked) != "a.7" {
		t.Errorf("the pod is %+v, %v", marked, err)
	}
	marked.Namespace = "shop"
	if got := k.Marked(marked); got != "" {
		t.Errorf("a stranger's pod has the mark %s", got)
	}

	if text, version, err := k.Read(ctx); text != "" || version != "" || err != nil {
		t.Errorf("before there is a record: %q, %q, %v", text, version, err)
	}
	if _, err := k.Write(ctx, "one", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Write(ctx, "two", ""); !apierrors.IsAlreadyExists(err) {
		t.Errorf("made twice: %v", err)
	}
	if text, _, err := k.Read(ctx); text != "one" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := k.Write(ctx, "three", "1"); err != nil {
		t.Fatal(err)
	}
	if err := set.CoreV1().ConfigMaps("vmlet").Delete(ctx, recordName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Write(ctx, "four", "2"); err != nil {
		t.Errorf("a record that was deleted is not made again: %v", err)
	}
	set.PrependReactor("update", "configmaps", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if v := a.(clienttesting.UpdateAction).GetObject().(*corev1.ConfigMap).ResourceVersion; v != "9" {
			t.Errorf("written over version %q", v)
		}
		return true, nil, apierrors.NewConflict(schema.GroupResource{}, recordName, nil)
	})
	if _, err := k.Write(ctx, "five", "9"); !apierrors.IsConflict(err) {
		t.Errorf("another's record is written over: %v", err)
	}
}

// TestKubernetesLists: all pages of pods are read, a watch begins where it is to, and has bookmarks.
func TestKubernetesLists(t *testing.T) {
	set := fake.NewClientset()
	k := Kubernetes{Core: set.CoreV1(), Namespace: "vmlet", Pod: "controller-0"}
	var asked []string
	set.PrependReactor("list", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		o := a.(clienttesting.ListActionImpl).ListOptions
		asked = append(asked, fmt.Sprintf("%s %d %s", a.GetNamespace(), o.Limit, o.Continue))
		list := &corev1.PodList{Items: []corev1.Pod{*pod("p"+o.Continue, "pg", nil)}}
		if list.ResourceVersion = "77"; o.Continue == "" {
			list.Continue = "2"
		}
		return true, list, nil
	})
	var names []string
	if err := k.Pods(t.Context(), shop, func(p *corev1.Pod) { names = append(names, p.Name) }); err != nil {
		t.Fatal(err)
	}
	from, err := k.Position(t.Context())
	if err != nil || from != "77" {
		t.Errorf("position %q, %v", from, err)
	}
	if got, want := fmt.Sprint(names, asked), "[p p2] [shop 20  shop 20 2  1 ]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	set.PrependWatchReactor("pods", func(a clienttesting.Action) (bool, watch.Interface, error) {
		o := a.(clienttesting.WatchActionImpl).ListOptions
		if o.ResourceVersion != from || !o.AllowWatchBookmarks || a.GetNamespace() != "" {
			t.Errorf("a watch of %q with %+v", a.GetNamespace(), o)
		}
		return true, watch.NewFake(), nil
	})
	if _, err := k.Watch(t.Context(), from); err != nil {
		t.Error(err)
	}
	if _, err := k.Claim(t.Context(), types.NamespacedName{Namespace: shop, Name: "pg"}); !apierrors.IsNotFound(err) {
		t.Errorf("a claim that is not there: %v", err)
	}
}
