package machine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/machine/action"
	"github.com/vmlet/vmlet/contract"
)

// TestSources: a DataVolume is made of a source that the VM's ServiceAccount may read, and of
// no other; what keeps it from being made is told.
func TestSources(t *testing.T) {
	golden := "golden"
	from := func(namespace, name string) *kubevirtv1.DataVolumeContent {
		return &kubevirtv1.DataVolumeContent{PVC: &kubevirtv1.DataVolumeObject{Namespace: namespace, Name: name}}
	}
	ref := func(namespace *string, name string) *kubevirtv1.DataVolumeSourceRef {
		return &kubevirtv1.DataVolumeSourceRef{Kind: "DataSource", Namespace: namespace, Name: name}
	}
	for name, c := range map[string]struct {
		spec    kubevirtv1.DataVolumeSpec
		account string
		want    string // the claim or snapshot that is the source
		event   string
		says    string
	}{
		"a URL":                 {spec: kubevirtv1.DataVolumeSpec{Source: &kubevirtv1.DataVolumeContent{HTTP: &kubevirtv1.DataVolumeHTTP{URL: "http://x"}}}, want: "none"},
		"own claim":             {spec: kubevirtv1.DataVolumeSpec{Source: from("ns", "here")}, want: "pvc ns/here"},
		"missing claim":         {spec: kubevirtv1.DataVolumeSpec{Source: from("ns", "gone")}, event: "SourcePVCNotAvailabe", says: "claim ns/gone"},
		"another's claim":       {spec: kubevirtv1.DataVolumeSpec{Source: from("golden", "image")}, event: "UnauthorizedDataVolumeCreate", says: "ServiceAccount ns/default"},
		"allowed claim":         {spec: kubevirtv1.DataVolumeSpec{Source: from("golden", "image")}, account: "cloner", want: "pvc golden/image"},
		"another's snapshot":    {spec: kubevirtv1.DataVolumeSpec{Source: &kubevirtv1.DataVolumeContent{Snapshot: &kubevirtv1.DataVolumeObject{Namespace: "golden", Name: "s"}}}, event: "UnauthorizedDataVolumeCreate"},
		"DataSource, forbidden": {spec: kubevirtv1.DataVolumeSpec{SourceRef: ref(&golden, "os")}, event: "UnauthorizedDataVolumeCreate"},
		"DataSource":            {spec: kubevirtv1.DataVolumeSpec{SourceRef: ref(&golden, "os")}, account: "cloner", want: "pvc golden/image"},
		"DataSource, missing":   {spec: kubevirtv1.DataVolumeSpec{SourceRef: ref(nil, "os")}, event: "SourcePVCNotAvailabe", says: "DataSource ns/os"},
		"another kind":          {spec: kubevirtv1.DataVolumeSpec{SourceRef: &kubevirtv1.DataVolumeSourceRef{Kind: "Secret", Name: "x"}}, event: "FailedDataVolumeCreate", says: `"Secret"`},
	} {
		t.Run(name, func(t *testing.T) {
			vm := newVM("Always")
			vm.Spec.Template.Spec.ServiceAccountName = c.account
			vm.Spec.Template.Spec.PriorityClassName = "high"
			vm.Spec.DataVolumeTemplates = []kubevirtv1.DataVolumeTemplateSpec{{
				ObjectMeta: metav1.ObjectMeta{Name: "disk", Labels: map[string]string{"a": "b"}}, Spec: c.spec,
			}}
			r, server, events := cdiWorld(t, vm)
			_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: web})
			made := &unstructured.Unstructured{}
			made.SetGroupVersionKind(cdi("DataVolume"))
			there := server.Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: "disk"}, made) == nil
			if c.want != "" {
				if err != nil || !there {
					t.Fatalf("made: %v, %v", there, err)
				}
				checkDataVolume(t, made, c.want)
				return
			}
			if err == nil || there {
				t.Fatalf("made: %v, %v", there, err)
			}
			if !slices.ContainsFunc(*events, func(e string) bool { return strings.HasPrefix(e, c.event+": ") && strings.Contains(e, c.says) }) {
				t.Errorf("events %q, want %s with %q", *events, c.event, c.says)
			}
			if err := server.Get(t.Context(), web, vm); err != nil {
				t.Fatal(err)
			}
			if failure := kubevirtv1.FindCondition(vm.Status.Conditions, "Failure"); failure == nil || !strings.Contains(failure.Message, c.says) {
				t.Errorf("condition %+v", failure)
			}
		})
	}
}

func checkDataVolume(t *testing.T, made *unstructured.Unstructured, want string) {
	t.Helper()
	got := "none"
	for _, kind := range []string{"pvc", "snapshot"} {
		if fields, there, _ := unstructured.NestedStringMap(made.Object, "spec", "source", kind); there {
			got = fmt.Sprintf("%s %s/%s", kind, fields["namespace"], fields["name"])
		}
	}
	if got != want {
		t.Errorf("source %s, want %s", got, want)
	}
	if _, there, _ := unstructured.NestedMap(made.Object, "spec", "sourceRef"); there {
		t.Error("sourceRef is left")
	}
	labels, annotations := fmt.Sprint(made.GetLabels()), fmt.Sprint(made.GetAnnotations())
	if labels != "map[a:b "+contract.LabelCreatedBy+":vm-uid]" || annotations != "map["+contract.AnnotationAllowClaimAdoption+":true "+contract.AnnotationBindImmediately+":true]" {
		t.Errorf("labels %s, annotations %s", labels, annotations)
	}
	if owner := metav1.GetControllerOf(made); owner == nil || owner.UID != vmUID {
		t.Errorf("owner %+v", owner)
	}
	if class, _, _ := unstructured.NestedString(made.Object, "spec", "priorityClassName"); class != "high" {
		t.Errorf("priority class %q", class)
	}
}

// cdiWorld is an API server with CDI's kinds, a golden image in another namespace, and a
// ServiceAccount ns/cloner that may clone it.
func cdiWorld(t *testing.T, vm *kubevirtv1.VirtualMachine) (*Reconciler, client.Client, *[]string) {
	t.Helper()
	scheme := newScheme(t)
	if err := authorizationv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"DataVolume", "DataSource"} {
		scheme.AddKnownTypeWithName(cdi(kind), &unstructured.Unstructured{})
		scheme.AddKnownTypeWithName(cdi(kind+"List"), &unstructured.UnstructuredList{})
	}
	source := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"source": map[string]any{"pvc": map[string]any{"name": "image"}}}}}
	source.SetGroupVersionKind(cdi("DataSource"))
	source.SetNamespace("golden")
	source.SetName("os")
	claim := func(namespace, name string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	server := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(vm).
		WithObjects(vm, source, claim("ns", "here"), claim("golden", "image")).Build()
	live := interceptor.NewClient(server, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if review, is := o.(*authorizationv1.SubjectAccessReview); is {
				a := review.Spec.ResourceAttributes
				review.Status.Allowed = review.Spec.User == "system:serviceaccount:ns:cloner" && a.Namespace == "golden" &&
					a.Verb == "create" && a.Resource == "datavolumes" && a.Subresource == "source" && a.Group == "cdi.kubevirt.io"
				return nil
			}
			return c.Create(ctx, o, options...)
		},
	})
	w := &world{now: noon}
	r := &Reconciler{
		Observer: &Observer{Client: live, Live: live, Defaults: noDefaults, DataVolumes: true, Now: w.clock},
		Writer:   &Writer{Client: live, Live: live, Events: recorder{w}},
	}
	return r, server, &w.events
}

// TestBindImmediately: a template may say otherwise.
func TestBindImmediately(t *testing.T) {
	for said, want := range map[string]string{"": "true", "true": "true", "false": "", "yes": "yes"} {
		template := &kubevirtv1.DataVolumeTemplateSpec{}
		if said != "" {
			template.Annotations = map[string]string{contract.AnnotationBindImmediately: said}
		}
		u, err := newDataVolume(newVM("Always"), template)
		if err != nil {
			t.Fatal(err)
		}
		if got := u.GetAnnotations()[contract.AnnotationBindImmediately]; got != want {
			t.Errorf("template %q: %q, want %q", said, got, want)
		}
	}
}

// TestOneDataVolumeFails: one that can't be made keeps no other from being made, and is told of.
func TestOneDataVolumeFails(t *testing.T) {
	vm := newVM("Halted")
	vm.Spec.DataVolumeTemplates = make([]kubevirtv1.DataVolumeTemplateSpec, 2)
	vm.Spec.DataVolumeTemplates[0].Name, vm.Spec.DataVolumeTemplates[1].Name = "a", "b"
	vm.Spec.DataVolumeTemplates[0].Spec.SourceRef = &kubevirtv1.DataVolumeSourceRef{Kind: "DataSource", Name: "gone"}
	r, server, events := cdiWorld(t, vm)
	if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: web}); err == nil {
		t.Error("no error: it is not tried again")
	}
	made := &unstructured.Unstructured{}
	made.SetGroupVersionKind(cdi("DataVolume"))
	if err := server.Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: "b"}, made); err != nil {
		t.Errorf("the other: %v", err)
	}
	if !slices.ContainsFunc(*events, func(e string) bool { return strings.HasPrefix(e, "SourcePVCNotAvailabe: DataSource ns/gone") }) {
		t.Errorf("events %q", *events)
	}
}

// TestStopWithoutDisk: a VM whose DataVolume can't be made can be stopped, and lets go of its
// instance.
func TestStopWithoutDisk(t *testing.T) {
	at := metav1.NewTime(noon)
	refused := &action.Failure{Reason: reasonFailedCreate, Event: reasonFailedDataVolumeCreate, Message: "no"}
	for name, c := range map[string]struct {
		change func(*state)
		want   string
	}{
		"runs, to be stopped": {func(o *state) {
			o.vm.Status.StateChangeRequests = []kubevirtv1.StateChangeRequest{stopRequest(firstUID)}
		}, "Stopping+Stop delete"},
		"has ended": {func(o *state) {
			o.instance.Status.Phase = kubevirtv1.PhaseFailed
			o.instance.DeletionTimestamp = &at
		}, "release:1 owners,[" + contract.FinalizerInstance + "] dv:disk Stopping"},
		"has ended, and fails": {func(o *state) {
			o.instance.Status.Phase = kubevirtv1.PhaseFailed
			o.instance.DeletionTimestamp = &at
			o.failed = refused
		}, "release:1 owners,[" + contract.FinalizerInstance + "] Stopping"},
	} {
		o := state{vm: newVM("Always"), defaults: noDefaults, now: noon, imports: true}
		o.volumes = []volume{{name: "disk", template: &kubevirtv1.DataVolumeTemplateSpec{ObjectMeta: metav1.ObjectMeta{Name: "disk"}}}}
		o.instance = made(o.vm, kubevirtv1.PhaseRunning, true)
		c.change(&o)
		if got := described(decide(o)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestAdoptDataVolume: a DataVolume that nobody controls becomes the VM's.
func TestAdoptDataVolume(t *testing.T) {
	vm := newVM("Halted")
	vm.Spec.DataVolumeTemplates = []kubevirtv1.DataVolumeTemplateSpec{{ObjectMeta: metav1.ObjectMeta{Name: "disk"}}}
	r, server, _ := cdiWorld(t, vm)
	there := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"phase": "Succeeded"}}}
	there.SetGroupVersionKind(cdi("DataVolume"))
	there.SetNamespace("ns")
	there.SetName("disk")
	if err := server.Create(t.Context(), there); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: web}); err != nil {
		t.Fatal(err)
	}
	if err := server.Get(t.Context(), client.ObjectKeyFromObject(there), there); err != nil {
		t.Fatal(err)
	}
	if owner := metav1.GetControllerOf(there); owner == nil || owner.UID != vmUID {
		t.Errorf("owner %+v", owner)
	}
}

// TestFailures: what the API server refuses for good is in the VM's status, told once, and
// gone when it is mended. What passes by itself is not told.
func TestFailures(t *testing.T) {
	terminating := apierrors.NewForbidden(schema.GroupResource{}, "web", nil)
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, c := range map[string]struct {
		err   error
		told  bool
		quiet bool // not even tried again
	}{
		"forbidden":            {apierrors.NewForbidden(schema.GroupResource{}, "web", nil), true, false},
		"invalid":              {apierrors.NewInvalid(schema.GroupKind{}, "web", nil), true, false},
		"a webhook is away":    {apierrors.NewInternalError(fmt.Errorf("failed calling webhook")), true, false},
		"busy":                 {apierrors.NewTooManyRequestsError("later"), false, false},
		"away":                 {fmt.Errorf("connection refused"), false, false},
		"starting":             {apierrors.NewServiceUnavailable("starting"), false, false},
		"namespace is deleted": {terminating, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, fault{}, lag{})
			w.must(w.create(t.Context(), newVM("Always")))
			refusing := w.reconciler()
			refusing.Writer.Client = interceptor.NewClient(refusing.Writer.Live.(client.WithWatch), interceptor.Funcs{
				Create: func(ctx context.Context, live client.WithWatch, o client.Object, options ...client.CreateOption) error {
					if _, is := o.(*kubevirtv1.VirtualMachineInstance); is {
						return c.err
					}
					return live.Create(ctx, o, options...)
				},
			})
			refusing.Observer.Client = refusing.Writer.Client
			for range 3 {
				if _, err := refusing.Reconcile(t.Context(), reconcile.Request{NamespacedName: web}); (err == nil) != c.quiet {
					t.Errorf("error %v", err)
				}
			}
			failure := kubevirtv1.FindCondition(w.vm().Status.Conditions, "Failure")
			if got := failure != nil && failure.Reason == "FailedCreate"; got != c.told {
				t.Errorf("condition %+v, told: %v", failure, c.told)
			}
			if want := map[bool]int{true: 1, false: 0}[c.told]; len(w.events) != want {
				t.Errorf("events %q, want %d", w.events, want)
			}
			w.converge(w.is("Running", 1))
		})
	}
}

// TestRefusedPatch: a VM that may not be given its finalizer is not started, and says why.
func TestRefusedPatch(t *testing.T) {
	w := newWorld(t, fault{}, lag{})
	w.begin("Always")
	r := w.reconciler()
	r.Writer.Client = interceptor.NewClient(r.Writer.Live.(client.WithWatch), interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return apierrors.NewInvalid(schema.GroupKind{}, "web", nil)
		},
	})
	r.Observer.Client = r.Writer.Client
	if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: web}); err == nil {
		t.Error("no error")
	}
	if failure := kubevirtv1.FindCondition(w.vm().Status.Conditions, "Failure"); failure == nil || !strings.Contains(failure.Message, "is invalid") {
		t.Errorf("condition %+v", failure)
	}
	if w.instance() != nil {
		t.Error("it was started")
	}
	w.converge(w.is("Running", 1))
}

// TestReadDataVolume: what is read of a DataVolume is bounded, and of the right type.
func TestReadDataVolume(t *testing.T) {
	condition := func(kind, status, reason string) map[string]any {
		return map[string]any{"type": kind, "status": status, "reason": reason, "message": strings.Repeat("m", 5000)}
	}
	for name, c := range map[string]struct {
		status any
		phase  string
		fault  string // how it begins
	}{
		"none":            {nil, "", ""},
		"nonsense":        {"x", "", ""},
		"nonsense within": {map[string]any{"phase": int64(3), "conditions": []any{"x", map[string]any{"type": int64(1)}}}, "", ""},
		"long":            {map[string]any{"phase": strings.Repeat("p", 100)}, strings.Repeat("p", 64) + "…", ""},
		"runs":            {map[string]any{"phase": "ImportInProgress", "conditions": []any{condition("Running", "True", "Pod is running")}}, "ImportInProgress", ""},
		"is over":         {map[string]any{"phase": "Succeeded", "conditions": []any{condition("Running", "False", "Completed")}}, "Succeeded", ""},
		"no image":        {map[string]any{"phase": "ImportInProgress", "conditions": []any{condition("Running", "False", "ImagePullFailed")}}, "ImportInProgress", "ImagePullFailed: mmm"},
		"error":           {map[string]any{"phase": "ImportInProgress", "conditions": []any{condition("Running", "False", "Error")}}, "ImportInProgress", "Error: mmm"},
		"failed":          {map[string]any{"phase": "Failed"}, "Failed", "the import has failed"},
	} {
		got := readDataVolume(&unstructured.Unstructured{Object: map[string]any{"status": c.status}})
		if got.phase != c.phase || !strings.HasPrefix(got.fault, c.fault) || (got.fault == "") != (c.fault == "") {
			t.Errorf("%s: %+v", name, got)
		}
		if len(got.fault) > action.Longest+len("…") {
			t.Errorf("%s: %d bytes", name, len(got.fault))
		}
	}
}
