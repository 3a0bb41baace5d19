package controller

import (
	"context"
	"log/slog"
	"reflect"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/vmlet/vmlet/autopilot/anchor"
	"github.com/vmlet/vmlet/autopilot/facts"
)

// Catching up takes milliseconds, unless the watch has just ended.
const (
	catchUpPatience = 5 * time.Second
	catchUpPause    = 10 * time.Millisecond
)

// watch is what is followed: all objects of a kind, or one.
type watch struct {
	of              schema.GroupVersionResource
	namespace, name string
}

// follower keeps objects that change: one watch each, that begins and ends while the program
// runs. An asset's object is followed by its name, so that no right over others is needed.
type follower struct {
	ctx context.Context
	api dynamic.Interface
	log *slog.Logger

	mu  sync.Mutex
	all map[watch]*followed
}

type followed struct {
	informer cache.SharedIndexInformer
	end      context.CancelFunc
}

// follow begins to follow, unless that goes on already. changed is called after each change.
func (f *follower) follow(w watch, strip func(*unstructured.Unstructured), changed func()) *followed {
	f.mu.Lock()
	defer f.mu.Unlock()
	if one := f.all[w]; one != nil {
		return one
	}
	ctx, end := context.WithCancel(f.ctx)
	one := &followed{end: end, informer: dynamicinformer.NewFilteredDynamicInformer(f.api, w.of, w.namespace, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		if w.name != "" {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, w.name).String()
		}
	}).Informer()}
	f.all[w] = one
	if strip != nil {
		// Only what has begun fails here.
		_ = one.informer.SetTransform(func(o any) (any, error) {
			if u, is := o.(*unstructured.Unstructured); is {
				strip(u)
			}
			return o, nil
		})
	}
	_ = one.informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		f.log.Info("watch ended, and begins again", "resource", w.of.GroupResource(), "namespace", w.namespace, "name", w.name, "error", err)
	})
	_, _ = one.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { changed() },
		UpdateFunc: func(before, after any) {
			if !same(before, after) {
				changed()
			}
		},
		DeleteFunc: func(any) { changed() },
	})
	go one.informer.RunWithContext(ctx)
	return one
}

// same reports whether two versions of an object differ in nothing that was kept of it.
func same(before, after any) bool {
	a, isA := before.(*unstructured.Unstructured)
	b, isB := after.(*unstructured.Unstructured)
	if !isA || !isB {
		return false
	}
	a, b = a.DeepCopy(), b.DeepCopy()
	for _, o := range []*unstructured.Unstructured{a, b} {
		o.SetResourceVersion("")
		o.SetManagedFields(nil)
	}
	return reflect.DeepEqual(a.Object, b.Object)
}

// drop ends one.
func (f *follower) drop(w watch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if one := f.all[w]; one != nil {
		one.end()
		delete(f.all, w)
	}
}

// catchUp waits until what is followed is as new as an object that was written, or is gone. It
// returns false if that takes too long.
func (f *follower) catchUp(ctx context.Context, w watch, written *unstructured.Unstructured) bool {
	f.mu.Lock()
	one := f.all[w]
	f.mu.Unlock()
	return wait.PollUntilContextTimeout(ctx, catchUpPause, catchUpPatience, true, func(context.Context) (bool, error) {
		return one == nil || !behind(one, written), nil
	}) == nil
}

func behind(one *followed, written *unstructured.Unstructured) bool {
	for _, o := range one.informer.GetStore().List() {
		u, is := o.(*unstructured.Unstructured)
		if is && u.GetName() == written.GetName() && u.GetNamespace() == written.GetNamespace() {
			order, err := resourceversion.CompareResourceVersion(u.GetResourceVersion(), written.GetResourceVersion())
			return err == nil && order < 0
		}
	}
	return false
}

// objects are what is known, once all is. They are not to be changed.
func (one *followed) objects(ctx context.Context) (all []*unstructured.Unstructured, err error) {
	if !cache.WaitForCacheSync(ctx.Done(), one.informer.HasSynced) {
		return nil, context.Cause(ctx)
	}
	for _, o := range one.informer.GetStore().List() {
		if u, is := o.(*unstructured.Unstructured); is {
			all = append(all, u)
		}
	}
	return all, nil
}

// cached reads what facts are made of from watches, which it begins as they are needed.
type cached struct {
	*follower
	namespace string
	changed   func()
}

// platform is the watch that has the platform object.
func (c cached) platform(f facts.Facts) watch {
	switch f.Anchor.Kind {
	case anchor.KindHyperConverged:
		return watch{of: f.Kinds.HyperConverged()}
	case anchor.KindKubeVirt:
		return watch{of: facts.KubeVirts()}
	}
	return watch{facts.ConfigMaps(), c.namespace, anchor.ConfigMapName}
}

// Get is for the one ConfigMap.
func (c cached) Get(ctx context.Context, of schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	all, err := c.follow(watch{of, namespace, name}, nil, c.changed).objects(ctx)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return all[0], nil
}

// List is of everything that is read for facts.
func (c cached) List(ctx context.Context, of schema.GroupVersionResource, namespace string) ([]*unstructured.Unstructured, error) {
	return c.follow(watch{of: of, namespace: namespace}, stripFor(of), c.changed).objects(ctx)
}

// stripFor removes what nobody reads of an object, which otherwise is most of it, and would call
// for everything to be looked at again whenever it changes.
func stripFor(of schema.GroupVersionResource) func(*unstructured.Unstructured) {
	switch of {
	case facts.CRDs():
		return func(o *unstructured.Unstructured) {
			plain(o)
			versions, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions")
			for _, v := range versions {
				if version, is := v.(map[string]any); is {
					delete(version, "schema")
				}
			}
			_ = unstructured.SetNestedSlice(o.Object, versions, "spec", "versions")
		}
	case facts.Nodes():
		return func(o *unstructured.Unstructured) {
			labels := o.GetLabels()
			plain(o)
			o.SetLabels(labels)
			allocatable, _, _ := unstructured.NestedMap(o.Object, "status", "allocatable")
			kubelet, _, _ := unstructured.NestedString(o.Object, "status", "nodeInfo", "kubeletVersion")
			delete(o.Object, "spec")
			o.Object["status"] = map[string]any{"allocatable": allocatable, "nodeInfo": map[string]any{"kubeletVersion": kubelet}}
		}
	case facts.Namespaces():
		return func(o *unstructured.Unstructured) {
			plain(o)
			delete(o.Object, "spec")
			delete(o.Object, "status")
		}
	}
	return func(o *unstructured.Unstructured) { // platform objects
		o.SetManagedFields(nil)
		if o.GetKind() != anchor.KindConfigMap {
			delete(o.Object, "status")
		}
	}
}

// withoutStatus is for objects that are applied: their controllers write their status all the time.
func withoutStatus(o *unstructured.Unstructured) { delete(o.Object, "status") }

func plain(o *unstructured.Unstructured) {
	o.SetManagedFields(nil)
	o.SetAnnotations(nil)
	o.SetLabels(nil)
}
