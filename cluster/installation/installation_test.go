package installation

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

func newClient(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), kubevirtv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&kubevirtv1.KubeVirt{}).WithInterceptorFuncs(funcs).Build()
}

// world is a cluster with vmlet in it, and the writes that were made.
type world struct {
	client.WithWatch
	*Installation
	writes []string
	ended  error // why the program was ended
	roots  string
	secret string // what the paths of vmlet-api's webhooks end with
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{roots: "roots"}
	objects = append(objects, definitions("", nil)...)
	objects = append(objects,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere", UID: "namespace"}},
		deployment("my-controller", 1), deployment("my-api", 2), daemonSet(3))
	note := func(verb string, o client.Object) {
		w.writes = append(w.writes, verb+" "+strings.TrimPrefix(strings.ToLower(typeName(o)), "*"))
	}
	w.WithWatch = newClient(t, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			note("create", o)
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			note("update", o)
			return c.Update(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			err := c.Delete(ctx, o, opts...)
			if err == nil {
				note("delete", o)
			}
			return err
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			note("patch "+sub+" of", o)
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	}, objects...)
	w.Installation = &Installation{
		Client: w.WithWatch, Live: w.WithWatch, Namespace: "elsewhere", Configuration: "elsewhere",
		Names: Names{Agent: "my-agent", Controller: "my-controller", API: "my-api"},
		Roots: func(context.Context) ([]byte, error) { return []byte(w.roots), nil },
		Paths: func(context.Context) (func(string) string, error) {
			return func(path string) string { return path + w.secret }, nil
		},
		Serve: func(_ context.Context, name string) (certificate, key []byte, err error) {
			return selfSigned(t, name), []byte("key of " + name), nil
		},
		Version: "v0.15.0",
		End:     func(cause error) { w.ended = cause }, Log: slog.New(slog.DiscardHandler),
	}
	return w
}

func typeName(o client.Object) string {
	switch o.(type) {
	case *admissionv1.MutatingWebhookConfiguration:
		return "mutating"
	case *admissionv1.ValidatingWebhookConfiguration:
		return "validating"
	case *kubevirtv1.KubeVirt:
		return "kubevirt"
	case *unstructured.Unstructured, *metav1.PartialObjectMetadata:
		return o.GetName()
	}
	return "other"
}

func deployment(name string, pods int32) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: name}, Status: appsv1.DeploymentStatus{AvailableReplicas: pods}}
}

func daemonSet(pods int32) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "my-agent"}, Status: appsv1.DaemonSetStatus{NumberAvailable: pods}}
}

// reconcile returns the writes of one round.
func (w *world) reconcile(t *testing.T) []string {
	t.Helper()
	w.writes = nil
	if _, err := w.Reconcile(t.Context(), reconcile.Request{}); err != nil {
		t.Fatal(err)
	}
	return w.writes
}

func (w *world) expect(t *testing.T, what string, want ...string) {
	t.Helper()
	if got := w.reconcile(t); !slices.Equal(got, want) {
		t.Errorf("%s: the writes are %q, want %q", what, got, want)
	}
}

func (w *world) validating(t *testing.T) *admissionv1.ValidatingWebhookConfiguration {
	t.Helper()
	c := &admissionv1.ValidatingWebhookConfiguration{}
	if err := w.Get(t.Context(), client.ObjectKey{Name: ConfigurationName}, c); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestWebhooksAreKept: they are made, undone what others change in them, and else left alone.
func TestWebhooksAreKept(t *testing.T) {
	w := newWorld(t)
	w.expect(t, "at first", "create mutating", "create validating", "create v1.subresources.kubevirt.io", "create v1alpha3.subresources.kubevirt.io")
	w.expect(t, "unchanged")
	for what, change := range map[string]func(*admissionv1.ValidatingWebhookConfiguration){
		"another policy": func(c *admissionv1.ValidatingWebhookConfiguration) {
			c.Webhooks[0].FailurePolicy = new(admissionv1.Ignore)
		},
		"a webhook less":     func(c *admissionv1.ValidatingWebhookConfiguration) { c.Webhooks = c.Webhooks[1:] },
		"one more":           func(c *admissionv1.ValidatingWebhookConfiguration) { c.Webhooks = append(c.Webhooks, c.Webhooks[0]) },
		"another service":    func(c *admissionv1.ValidatingWebhookConfiguration) { c.Webhooks[0].ClientConfig.Service.Name = "other" },
		"another timeout":    func(c *admissionv1.ValidatingWebhookConfiguration) { c.Webhooks[0].TimeoutSeconds = new(int32(1)) },
		"no condition":       func(c *admissionv1.ValidatingWebhookConfiguration) { c.Webhooks[0].MatchConditions = nil },
		"fewer operations":   func(c *admissionv1.ValidatingWebhookConfiguration) { c.Webhooks[0].Rules[0].Operations = nil },
		"no owner":           func(c *admissionv1.ValidatingWebhookConfiguration) { c.OwnerReferences = nil },
		"another's label":    func(c *admissionv1.ValidatingWebhookConfiguration) { c.Labels[partOf] = "other" },
		"other certificates": func(c *admissionv1.ValidatingWebhookConfiguration) { c.Webhooks[2].ClientConfig.CABundle = nil },
		"a policy to evict": func(c *admissionv1.ValidatingWebhookConfiguration) {
			c.Webhooks[4].FailurePolicy = new(admissionv1.Fail)
		},
		"exact versions only": func(c *admissionv1.ValidatingWebhookConfiguration) {
			c.Webhooks[0].MatchPolicy = new(admissionv1.Exact)
		},
	} {
		before := w.validating(t)
		changed := before.DeepCopy()
		change(changed)
		if err := w.WithWatch.Update(t.Context(), changed); err != nil {
			t.Fatal(err)
		}
		w.expect(t, what, "update validating")
		if after := w.validating(t); after.Labels[partOf] != vmlet || len(after.Webhooks) != len(before.Webhooks) {
			t.Errorf("%s: afterwards it is %+v", what, after)
		}
		w.expect(t, what+", again")
	}
	w.secret = "/secret"
	w.expect(t, "with other paths", "update mutating", "update validating")
	for _, h := range w.validating(t).Webhooks {
		if path := *h.ClientConfig.Service.Path; !strings.HasSuffix(path, w.secret) {
			t.Errorf("%s is called at %s, which any caller knows", h.Name, path)
		}
	}
	w.roots = "new roots"
	w.expect(t, "with a new CA", "update mutating", "update validating", "update v1.subresources.kubevirt.io", "update v1alpha3.subresources.kubevirt.io")
}

// TestSelectorsAreTheAdministrators: clouds add their own namespaces to what webhooks leave
// alone, and would add them again and again.
func TestSelectorsAreTheAdministrators(t *testing.T) {
	w := newWorld(t)
	w.reconcile(t)
	c := w.validating(t)
	exempt := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "control-plane", Operator: metav1.LabelSelectorOpDoesNotExist}}}
	c.Webhooks[0].NamespaceSelector = exempt
	c.Annotations = map[string]string{"example.com/note": "kept"}
	if err := w.WithWatch.Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	w.expect(t, "with a selector")
	w.roots = "new roots"
	w.reconcile(t)
	if after := w.validating(t); len(after.Webhooks[0].NamespaceSelector.MatchExpressions) != 1 || after.Annotations["example.com/note"] != "kept" {
		t.Errorf("afterwards the selector is %v and the annotations %v", after.Webhooks[0].NamespaceSelector, after.Annotations)
	}
}

// TestWebhooks: what fails where vmlet-api is away, and what never reaches it.
func TestWebhooks(t *testing.T) {
	w := newWorld(t)
	w.reconcile(t)
	c := w.validating(t)
	if want := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: "elsewhere", UID: "namespace"}}; !slices.Equal(c.OwnerReferences, want) {
		t.Errorf("it belongs to %+v, want %+v", c.OwnerReferences, want)
	}
	for _, h := range c.Webhooks {
		want, condition := admissionv1.Fail, "request.operation != 'UPDATE' || !has(object.metadata.deletionTimestamp)"
		if h.Rules[0].Resources[0] == "pods/eviction" {
			want, condition = admissionv1.Ignore, "object.metadata.name.startsWith('virt-launcher-') || object.metadata.name.startsWith('hp-')"
		}
		if *h.FailurePolicy != want || len(h.MatchConditions) != 1 || h.MatchConditions[0].Expression != condition {
			t.Errorf("%s: %s where %v, want %s where %s", h.Name, *h.FailurePolicy, h.MatchConditions, want, condition)
		}
		if s := h.ClientConfig.Service; s.Namespace != "elsewhere" || s.Name != "my-api" {
			t.Errorf("%s is sent to %s/%s, want elsewhere/my-api", h.Name, s.Namespace, s.Name)
		}
	}
}

// TestUninstall: the webhooks go with the namespace or the Deployment, and don't come back.
func TestUninstall(t *testing.T) {
	gone := []string{"delete mutating", "delete validating", "delete v1.subresources.kubevirt.io", "delete v1alpha3.subresources.kubevirt.io"}
	for what, leave := range map[string]func(*world) error{
		"the Deployment is gone":          func(w *world) error { return w.WithWatch.Delete(t.Context(), deployment("my-controller", 0)) },
		"the Deployment is being deleted": func(w *world) error { return w.deleting(t, deployment("my-controller", 0)) },
		"the namespace is being deleted": func(w *world) error {
			return w.deleting(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}})
		},
		// As its definitions go first, by chance.
		"all is gone": func(w *world) error {
			err := w.WithWatch.Delete(t.Context(), deployment("my-controller", 0))
			for _, d := range definitions("", nil) {
				err = errors.Join(err, w.WithWatch.Delete(t.Context(), d))
			}
			return err
		},
	} {
		w := newWorld(t)
		w.reconcile(t)
		if err := leave(w); err != nil {
			t.Fatal(err)
		}
		w.expect(t, what, gone...)
		w.expect(t, what+", later")
		if w.ended != nil {
			t.Errorf("%s: the program was ended: %v", what, w.ended)
		}
	}
}

// TestLeave: a program that ends deletes the webhooks of an installation that is gone, though its
// cache doesn't know that, and leaves those of another one alone.
func TestLeave(t *testing.T) {
	w := newWorld(t)
	w.reconcile(t)
	w.writes = nil
	if err := w.Leave(t.Context()); err != nil || len(w.writes) > 0 {
		t.Errorf("an installation that stays: %v and the writes %q, want none", err, w.writes)
	}
	w.Client = newClient(t, interceptor.Funcs{Delete: func(ctx context.Context, _ client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
		return w.WithWatch.Delete(ctx, o, opts...)
	}}, deployment("my-controller", 1)) // the cache
	if err := w.WithWatch.Delete(t.Context(), deployment("my-controller", 0)); err != nil {
		t.Fatal(err)
	}
	w.writes = nil
	if err := w.Leave(t.Context()); err != nil || !slices.Equal(w.writes, []string{"delete mutating", "delete validating", "delete v1.subresources.kubevirt.io", "delete v1alpha3.subresources.kubevirt.io"}) {
		t.Errorf("one that is gone: %v and the writes %q, want that all are deleted", err, w.writes)
	}
}

// deleting has an object wait for a finalizer.
func (w *world) deleting(t *testing.T, o client.Object) error {
	t.Helper()
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		return err
	}
	o.SetFinalizers([]string{"example.com/wait"})
	return errors.Join(w.WithWatch.Update(t.Context(), o), w.WithWatch.Delete(t.Context(), o))
}

// TestAnotherController: where the kinds become another's, vmlet ends, and its webhooks stand in
// nobody's way.
func TestAnotherController(t *testing.T) {
	w := newWorld(t)
	w.reconcile(t)
	d := Definition()
	if err := w.Get(t.Context(), client.ObjectKey{Name: "virtualmachines.kubevirt.io"}, d); err != nil {
		t.Fatal(err)
	}
	d.Labels["app.kubernetes.io/managed-by"] = "virt-operator"
	if err := w.WithWatch.Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	w.writes = nil
	w.expect(t, "KubeVirt's", "delete mutating", "delete validating", "delete v1.subresources.kubevirt.io", "delete v1alpha3.subresources.kubevirt.io")
	if w.ended == nil || !strings.Contains(w.ended.Error(), "virtualmachines.kubevirt.io belongs to KubeVirt") {
		t.Errorf("the program was ended with %v", w.ended)
	}
}

// TestFailuresAreErrors: what can't be read changes nothing.
// TestInstalledTwice: of two installations one ends, and leaves the other's webhooks alone.
func TestInstalledTwice(t *testing.T) {
	for name, c := range map[string]struct {
		namespace *corev1.Namespace
		want      bool // that the program ends
	}{
		"another namespace":    {&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "first", UID: "first"}}, true},
		"one that is gone":     {nil, false},
		"another of that name": {&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "first", UID: "later"}}, false},
		"one being deleted": {&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: "first", UID: "first", DeletionTimestamp: new(metav1.Now()), Finalizers: []string{"kubernetes"}}}, false},
	} {
		objects := []client.Object{&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{
			Name: ConfigurationName, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: "first", UID: "first"}}}}}
		if c.namespace != nil {
			objects = append(objects, c.namespace)
		}
		w := newWorld(t, objects...)
		writes := w.reconcile(t)
		if ended := w.ended != nil; ended != c.want {
			t.Errorf("%s: the program ends: %v (%v), want %v", name, ended, w.ended, c.want)
		}
		if c.want && len(writes) > 0 {
			t.Errorf("%s: the writes are %q, want none", name, writes)
		}
	}
}

func TestFailuresAreErrors(t *testing.T) {
	w := newWorld(t)
	w.reconcile(t)
	down := errors.New("connection refused")
	w.Roots = func(context.Context) ([]byte, error) { return nil, down }
	w.writes = nil
	if _, err := w.Reconcile(t.Context(), reconcile.Request{}); !errors.Is(err, down) || len(w.writes) > 0 {
		t.Errorf("without the CA: %v after the writes %q, want the error and none", err, w.writes)
	}
	w = newWorld(t)
	w.Client = newClient(t, interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		return apierrors.NewTimeoutError("busy", 1)
	}})
	if _, err := w.Reconcile(t.Context(), reconcile.Request{}); !apierrors.IsTimeout(err) {
		t.Errorf("without the namespace: %v, want the timeout", err)
	}
}

// TestAnnounced: the API server is told of vmlet-api while a replica of it can be reached, and an
// API of another is left alone.
func TestAnnounced(t *testing.T) {
	w := newWorld(t)
	w.reconcile(t)
	s := &unstructured.Unstructured{}
	s.SetGroupVersionKind(apiServiceKind())
	if err := w.Get(t.Context(), client.ObjectKey{Name: "v1alpha3.subresources.kubevirt.io"}, s); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"group": "subresources.kubevirt.io", "version": "v1alpha3", "groupPriorityMinimum": int64(1000), "versionPriority": int64(15),
		"service": map[string]any{"namespace": "elsewhere", "name": "my-api", "port": int64(8443)}, "caBundle": "cm9vdHM=",
	}
	if !reflect.DeepEqual(s.Object["spec"], want) {
		t.Errorf("the APIService is %v, want %v", s.Object["spec"], want)
	}
	api := deployment("my-api", 0)
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(api), api); err != nil {
		t.Fatal(err)
	}
	available := func(replicas int32) {
		t.Helper()
		api.Status.AvailableReplicas = replicas
		if err := w.WithWatch.Status().Update(t.Context(), api); err != nil {
			t.Fatal(err)
		}
	}
	available(0)
	w.expect(t, "no replica", "delete v1.subresources.kubevirt.io", "delete v1alpha3.subresources.kubevirt.io")
	w.expect(t, "no replica, later")
	available(1)
	w.expect(t, "one replica", "create v1.subresources.kubevirt.io", "create v1alpha3.subresources.kubevirt.io")
	if err := w.Get(t.Context(), client.ObjectKey{Name: "v1alpha3.subresources.kubevirt.io"}, s); err != nil {
		t.Fatal(err)
	}
	s.SetOwnerReferences(nil)
	if err := w.WithWatch.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := w.WithWatch.Delete(t.Context(), deployment("my-controller", 0)); err != nil {
		t.Fatal(err)
	}
	w.expect(t, "another's", "delete mutating", "delete validating", "delete v1.subresources.kubevirt.io")
}

// selfSigned is a certificate for a DNS name.
func selfSigned(t *testing.T, name string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{DNSNames: []string{name}, NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
