package importers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/calls"
	"github.com/vmlet/vmlet/cluster/claimuse"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/imports"
	"github.com/vmlet/vmlet/cluster/launcher"
	"github.com/vmlet/vmlet/contract"
)

var root = types.NamespacedName{Namespace: "ns", Name: "root"}

// world is an API server, and a kubelet that runs importers.
type world struct {
	t      *testing.T
	server client.WithWatch
	writes int
	// at is the number of the write that a fault befalls, from 1; unheard: it is done, and nobody knows.
	at      int
	unheard bool
	// ran is how many pods have filled the claim, made how many were made.
	ran, made int
	uids      int
	events    *events.FakeRecorder
	// asked are the pods that were asked for their progress, by calls.
	asked []string
	calls Calls
	now   time.Time
}

// atOnce are calls that end before anybody asks again.
type atOnce struct{}

func (atOnce) Make(_ calls.Key, do func(context.Context) (float64, error)) calls.Answer[float64] {
	result, err := do(context.Background())
	return calls.Answer[float64]{Ended: true, Result: result, Err: err}
}

// never are calls of pods that don't answer.
type never struct{}

func (never) Make(calls.Key, func(context.Context) (float64, error)) calls.Answer[float64] {
	return calls.Answer[float64]{}
}

func newWorld(t *testing.T, source *kubevirtv1.DataVolumeContent, more ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), storagev1.AddToScheme(scheme), kubevirtv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	vm := new(kubevirtv1.VirtualMachine)
	vm.Namespace, vm.Name, vm.UID = "ns", "web", "vm-uid"
	template := kubevirtv1.DataVolumeTemplateSpec{}
	template.Name, template.Spec.Source = "root", source
	template.Spec.Storage = &kubevirtv1.StorageSpec{}
	template.Spec.Storage.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	vm.Spec.DataVolumeTemplates = []kubevirtv1.DataVolumeTemplateSpec{template}
	claim := imports.Claim(vm, &template, *metav1.NewControllerRef(vm, schema.GroupVersionKind{Group: kubevirtv1.Group, Version: kubevirtv1.Version, Kind: "VirtualMachine"}), imports.Origin{})
	claim.UID = "claim-uid"
	w := &world{t: t, now: time.Unix(0, 0), calls: atOnce{}, events: events.NewFakeRecorder(100)}
	w.server = fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(more, vm, claim)...).Build()
	return w
}

func (w *world) reconciler() *Reconciler {
	c := interceptor.NewClient(w.server, interceptor.Funcs{
		Create: func(ctx context.Context, _ client.WithWatch, o client.Object, options ...client.CreateOption) error {
			return w.write(func() error {
				w.uids++
				o.SetUID(types.UID(fmt.Sprintf("pod-%d", w.uids)))
				err := w.server.Create(ctx, o, options...)
				if err == nil {
					w.made++
				}
				return err
			})
		},
		Patch: func(ctx context.Context, _ client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
			return w.write(func() error { return w.server.Patch(ctx, o, p, options...) })
		},
		Delete: func(ctx context.Context, _ client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			return w.write(func() error { return w.server.Delete(ctx, o) })
		},
	})
	return &Reconciler{
		Client: c, Live: c, Events: w.events, Now: func() time.Time { return w.now }, Making: new(claimuse.Locks),
		Progress: func(_ context.Context, p *corev1.Pod) float64 { w.asked = append(w.asked, p.Name); return 42 },
		Calls:    w.calls,
		Pod: func(f launcher.Filling) (*corev1.Pod, error) {
			f.Input = convert.Input{Instance: new(kubevirtv1.VirtualMachineInstance), Configuration: configuration.Default(), Launcher: "vmlet"}
			return launcher.Importer(f), nil
		},
	}
}

func (w *world) write(do func() error) error {
	if w.writes++; w.writes != w.at {
		return do()
	}
	if w.unheard {
		_ = do()
	}
	return apierrors.NewInternalError(errors.New("killed"))
}

// kubelet takes the importer's pod one step further.
func (w *world) kubelet() {
	w.t.Helper()
	var pods corev1.PodList
	if err := w.server.List(w.t.Context(), &pods); err != nil {
		w.t.Fatal(err)
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Labels[contract.LabelApp] != contract.LabelAppImporter {
			continue
		}
		switch p.Status.Phase {
		case "":
			p.Status.Phase = corev1.PodRunning
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: contract.ContainerImporter, State: corev1.ContainerState{Running: new(corev1.ContainerStateRunning)}}}
		case corev1.PodRunning:
			w.ran++
			if w.phase() == contract.ImportSucceeded {
				w.t.Error("a claim that is filled was filled once more")
			}
			p.Status.Phase = corev1.PodSucceeded
			p.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: "imported claim-uid"}}
		}
		if err := w.server.Status().Update(w.t.Context(), p); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) claim() *corev1.PersistentVolumeClaim {
	w.t.Helper()
	claim := new(corev1.PersistentVolumeClaim)
	if err := w.server.Get(w.t.Context(), root, claim); err != nil {
		w.t.Fatal(err)
	}
	return claim
}

func (w *world) phase() string { return w.claim().Annotations[contract.AnnotationImportPhase] }

// step has the controller, who remembers nothing, look at the claim.
func (w *world) step() (reconcile.Result, error) {
	return w.reconciler().Reconcile(w.t.Context(), reconcile.Request{NamespacedName: root})
}

// TestWalk: an import comes to its end whichever of the controller's writes fails, or is done
// unheard; the claim is filled once, and nothing is left.
func TestWalk(t *testing.T) {
	writes := 0
	for at := 0; at <= writes; at++ {
		for _, unheard := range []bool{false, true} {
			w := newWorld(t, &kubevirtv1.DataVolumeContent{Blank: &kubevirtv1.DataVolumeBlank{}})
			w.at, w.unheard = at, unheard
			for range 12 {
				if _, err := w.step(); err != nil && !strings.Contains(err.Error(), "killed") {
					t.Fatal(err)
				}
				w.kubelet()
			}
			if got := w.phase(); got != contract.ImportSucceeded {
				t.Errorf("write %d fails (done: %v): the import is %s", at, unheard, got)
			}
			if w.ran != 1 || w.made != 1 {
				t.Errorf("write %d fails (done: %v): %d pods were made, and %d filled the claim, want 1", at, unheard, w.made, w.ran)
			}
			var pods corev1.PodList
			if err := w.server.List(t.Context(), &pods); err != nil || len(pods.Items) > 0 {
				t.Errorf("write %d fails (done: %v): %d pods are left, %v", at, unheard, len(pods.Items), err)
			}
			if at == 0 {
				if got := w.claim().Annotations[contract.AnnotationImportProgress]; got != "100%" {
					t.Errorf("at its end the progress is %q", got)
				}
				writes = w.writes
			}
		}
	}
}

// TestStrangers: of pods that pose as importers none is asked, and all are deleted; and an import comes to
// its end though its own pod never answers.
func TestStrangers(t *testing.T) {
	for name, how := range map[string]Calls{"all answer": atOnce{}, "none answers": never{}} {
		w := newWorld(t, &kubevirtv1.DataVolumeContent{Blank: &kubevirtv1.DataVolumeBlank{}})
		w.calls = how
		step := func() {
			if _, err := w.step(); err != nil {
				t.Fatal(err)
			}
		}
		step()
		step()
		var pods corev1.PodList
		if err := w.server.List(t.Context(), &pods); err != nil || len(pods.Items) != 1 {
			t.Fatalf("%d pods, %v", len(pods.Items), err)
		}
		own := pods.Items[0]
		for i := range 9 {
			stranger := own.DeepCopy()
			stranger.ResourceVersion, stranger.UID, stranger.Name = "", types.UID(fmt.Sprint("stranger-", i)), fmt.Sprint("stranger-", i)
			if err := w.server.Create(t.Context(), stranger); err != nil {
				t.Fatal(err)
			}
		}
		w.kubelet()
		step()
		if err := w.server.List(t.Context(), &pods); err != nil || len(pods.Items) != 1 {
			t.Errorf("%s: %d pods are left, want the claim's own; %v", name, len(pods.Items), err)
		}
		for _, asked := range w.asked {
			if asked != own.Name {
				t.Errorf("%s: pod %s was asked", name, asked)
			}
		}
		for range 3 {
			w.kubelet()
			step()
		}
		if got := w.phase(); got != contract.ImportSucceeded {
			t.Errorf("%s: the import is %s", name, got)
		}
	}
}

// launcherPod is a VM's, with a claim. Its instance has UID "uid-web".
func launcherPod(claim string) *corev1.Pod {
	p := new(corev1.Pod)
	p.Namespace, p.Name, p.Finalizers = "ns", "virt-launcher-web", []string{contract.FinalizerPod}
	p.Labels = map[string]string{contract.LabelApp: contract.LabelAppLauncher, contract.LabelCreatedBy: "uid-web"}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstance", Name: "web", UID: "uid-web", Controller: new(true)}}
	p.Spec.Volumes = []corev1.Volume{{Name: "disk", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
	return p
}

// remove has a VM's pod be known to have ended, and gone.
func (w *world) remove(p *corev1.Pod) {
	w.t.Helper()
	p.Finalizers = nil
	if err := errors.Join(w.server.Update(w.t.Context(), p), w.server.Delete(w.t.Context(), p)); err != nil {
		w.t.Fatal(err)
	}
}

// containing gives a pod a container that was started, in a state.
func containing(p *corev1.Pod, s corev1.ContainerState) *corev1.Pod {
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", ContainerID: "containerd://0123", State: s}}
	return p
}

// TestUsers: a claim is not copied while a pod may write to it.
func TestUsers(t *testing.T) {
	pod := func(name string, phase corev1.PodPhase, readOnly bool) *corev1.Pod {
		p := new(corev1.Pod)
		p.Namespace, p.Name, p.Status.Phase = "ns", name, phase
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "golden", ReadOnly: readOnly}}}}
		return p
	}
	golden := new(corev1.PersistentVolumeClaim)
	golden.Namespace, golden.Name = "ns", "golden"
	vmi := new(kubevirtv1.VirtualMachineInstance) // that of launcherPod
	vmi.Namespace, vmi.Name, vmi.UID = "ns", "web", "uid-web"
	vmi.Spec.Domain.Devices.Disks = []kubevirtv1.Disk{{Name: "disk", Disk: &kubevirtv1.DiskTarget{ReadOnly: true}}}
	vmi.Spec.Volumes = []kubevirtv1.Volume{{Name: "disk", DataVolume: &kubevirtv1.DataVolumeSource{Name: "golden"}}}
	strangers := launcherPod("golden")
	strangers.Labels[contract.LabelCreatedBy], strangers.OwnerReferences[0].UID = "uid-db", "uid-db"
	poser := launcherPod("golden")
	poser.Finalizers, poser.OwnerReferences = nil, nil
	for name, c := range map[string]struct {
		user *corev1.Pod
		want string
	}{
		"runs":                       {pod("user", corev1.PodRunning, false), contract.ImportPending},
		"begins":                     {pod("user", corev1.PodPending, false), contract.ImportPending},
		"reads":                      {pod("user", corev1.PodRunning, true), contract.ImportScheduled},
		"ended":                      {pod("user", corev1.PodSucceeded, false), contract.ImportScheduled},
		"failed by others' word":     {containing(pod("user", corev1.PodFailed, false), corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}), contract.ImportPending},
		"a VM that reads":            {launcherPod("golden"), contract.ImportScheduled},
		"a VM of which nobody knows": {strangers, contract.ImportPending},
		"with a VM's label alone":    {poser, contract.ImportPending},
		"lost sight of": {containing(pod("user", corev1.PodFailed, false), corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: 137, Reason: "ContainerStatusUnknown"}}), contract.ImportPending},
	} {
		w := newWorld(t, &kubevirtv1.DataVolumeContent{PVC: &kubevirtv1.DataVolumeObject{Namespace: "ns", Name: "golden"}}, golden.DeepCopy(), vmi.DeepCopy(), c.user)
		result, err := w.step()
		if err != nil {
			t.Fatal(err)
		}
		if got := w.phase(); got != c.want {
			t.Errorf("%s: the import is %s, want %s", name, got, c.want)
		}
		if waits := c.want == contract.ImportPending; waits && result.RequeueAfter == 0 {
			t.Errorf("%s: nobody looks again", name)
		}
	}
}

// TestUsedClaim: a claim with which a VM runs is not filled, though it lost its mark, until that has ended.
func TestUsedClaim(t *testing.T) {
	vm := launcherPod(root.Name)
	w := newWorld(t, &kubevirtv1.DataVolumeContent{Blank: &kubevirtv1.DataVolumeBlank{}}, vm)
	result, err := w.step()
	if err != nil {
		t.Fatal(err)
	}
	if w.made > 0 || result.RequeueAfter == 0 {
		t.Errorf("%d importers were made while a VM writes to the claim, and it is looked at again in %v", w.made, result.RequeueAfter)
	}
	if got := w.claim().Annotations[contract.AnnotationImportMessage]; !strings.Contains(got, "pod virt-launcher-web uses the claim") {
		t.Errorf("the claim says %q", got)
	}
	w.remove(vm)
	if _, err := w.step(); err != nil || w.made != 1 {
		t.Errorf("when it has ended: %d importers were made, %v", w.made, err)
	}
}

// TestMadeAlone: no claim is filled, or copied, that a VM is being started with at that moment, or got a pod with since the
// last look.
func TestMadeAlone(t *testing.T) {
	golden := new(corev1.PersistentVolumeClaim)
	golden.Namespace, golden.Name = "ns", "golden"
	for name, claim := range map[string]string{"the claim": root.Name, "its source": golden.Name} {
		w := newWorld(t, &kubevirtv1.DataVolumeContent{PVC: &kubevirtv1.DataVolumeObject{Namespace: "ns", Name: "golden"}}, golden.DeepCopy())
		r := w.reconciler()
		step := func(made int, what string) {
			t.Helper()
			result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: root})
			if err != nil || w.made != made || made == 0 && result.RequeueAfter == 0 {
				t.Errorf("%s, %s: %d pods are made, want %d; the next look is in %v; %v", name, what, w.made, made, result.RequeueAfter, err)
			}
		}
		done, _ := r.Making.Begin("ns", []claimuse.Use{{Claim: claim, Writes: true}})
		step(0, "a VM is being started")
		done()

		vm := launcherPod(claim)
		bare := r.Pod
		r.Pod = func(f launcher.Filling) (*corev1.Pod, error) {
			if err := w.server.Create(t.Context(), vm); err != nil {
				t.Error(err)
			}
			return bare(f)
		}
		step(0, "a VM got its pod")
		w.remove(vm)
		r.Pod = bare
		step(1, "nobody has it")
	}
}

// TestSourceIsFreeBetweenAttempts: when a copy fails, or its pod does not start, the pod goes, and for a while none is made:
// a VM of the source may start then, and the copy goes on when that has ended.
func TestSourceIsFreeBetweenAttempts(t *testing.T) {
	golden := new(corev1.PersistentVolumeClaim)
	golden.Namespace, golden.Name = "ns", "golden"
	fails := func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodFailed
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: contract.ContainerImporter, ContainerID: "containerd://1",
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: "no room", FinishedAt: metav1.Unix(1, 0)}}}}
	}
	aged := func(by time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(time.Unix(0, 0).Add(by)) }
	}
	for name, c := range map[string]struct {
		ends  func(*corev1.Pod)
		takes time.Duration
		says  string
	}{
		"fails":      {fails, 0, "no room; the next attempt begins at "},
		"never runs": {func(*corev1.Pod) {}, 10 * time.Minute, "has not started for 10m0s"},
		"never runs, by an API server that is ahead":  {aged(time.Hour), 10 * time.Minute, "has not started for 10m0s"},
		"never runs, by an API server that is behind": {aged(-time.Hour), 10 * time.Minute, "has not started for 10m0s"},
	} {
		w := newWorld(t, &kubevirtv1.DataVolumeContent{PVC: &kubevirtv1.DataVolumeObject{Namespace: "ns", Name: "golden"}}, golden.DeepCopy())
		r := w.reconciler()
		step := func(pods int, what string) time.Duration {
			t.Helper()
			result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: root})
			var all corev1.PodList
			if err := errors.Join(err, w.server.List(t.Context(), &all, client.MatchingLabels{contract.LabelApp: contract.LabelAppImporter})); err != nil {
				t.Fatal(err)
			}
			if len(all.Items) != pods {
				t.Errorf("%s: %s: %d importers, want %d", name, what, len(all.Items), pods)
			}
			for i := range all.Items {
				p := &all.Items[i]
				c.ends(p)
				status := p.Status
				if err := w.server.Update(t.Context(), p); err != nil {
					t.Fatal(err)
				}
				p.Status = status
				if err := w.server.Status().Update(t.Context(), p); err != nil {
					t.Fatal(err)
				}
			}
			return result.RequeueAfter
		}
		step(1, "it begins")
		if c.takes > 0 {
			step(1, "its pod is seen")
			w.now = w.now.Add(c.takes - time.Second)
			step(1, "its pod has some time left")
			w.now = w.now.Add(time.Second)
		}
		step(0, "its pod has failed")
		if got := w.claim().Annotations[contract.AnnotationImportMessage]; !strings.Contains(got, c.says) || !strings.Contains(got, "until then VMs may start with claim golden") {
			t.Errorf("%s: the claim says %q", name, got)
		}
		pause := step(0, "it pauses")
		if pause <= 0 {
			t.Errorf("%s: nobody looks again after the pause", name)
		}
		vm := launcherPod("golden")
		if err := w.server.Create(t.Context(), vm); err != nil {
			t.Fatal(err)
		}
		w.now = w.now.Add(pause)
		step(0, "a VM of the source has started")
		w.remove(vm)
		step(1, "that has ended")
	}
}

// TestRefusedPod: that the pod can't be made is said on the claim, once.
func TestRefusedPod(t *testing.T) {
	w := newWorld(t, &kubevirtv1.DataVolumeContent{Blank: &kubevirtv1.DataVolumeBlank{}})
	for range 3 {
		r := w.reconciler()
		r.Client = interceptor.NewClient(w.server, interceptor.Funcs{
			Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
				return apierrors.NewForbidden(corev1.Resource("pods"), "importer", errors.New("exceeded quota"))
			},
		})
		if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: root}); err == nil {
			t.Error("the error is lost")
		}
		got := w.claim().Annotations
		if got[contract.AnnotationImportPhase] != contract.ImportFailed || !strings.Contains(got[contract.AnnotationImportMessage], "exceeded quota") {
			t.Errorf("the claim says %v", got)
		}
	}
}

// TestProgress: what a pod answers is bounded, and nothing that it says is followed.
func TestProgress(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"percent":  {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "57.3") }, "57.3"},
		"nonsense": {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "far") }, "invalid syntax"},
		"endless":  {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat("1", 1<<20)) }, "1.111111111111111e+15"},
		"elsewhere": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
		}, "it redirects"},
	} {
		s := httptest.NewServer(c.answer)
		client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("it redirects") }}
		percent, err := ask(t.Context(), client, s.URL)
		got := fmt.Sprint(percent)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		s.Close()
	}
}
