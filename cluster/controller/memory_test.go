package controller

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmlet/vmlet/cluster/program"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/test/cluster"
	"github.com/vmlet/vmlet/test/everything"
)

// memoryLimit is the Deployment's, in bytes.
const memoryLimit = 512 << 20

// TestCacheMemory: pods and claims as large as an API server takes, made by one tenant, leave the caches
// below half of the program's limit, also while they are filled.
func TestCacheMemory(t *testing.T) {
	everything.OrSkip(t, "fills an API server with a gigabyte")
	if err := cluster.Unfit(); err != nil {
		t.Skip(err)
	}
	c, err := cluster.Start(t.Context(), cluster.Options{Logf: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop() })
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Burst = -1, -1
	if out, err := c.Kubectl(t.Context(), "apply", "--server-side", "-k", "../../deploy/crd"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	fill(t, config)
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil { // VmHWM begins again
		t.Fatal(err)
	}
	before := peak(t)
	runCache(t, config)
	if took := peak(t) - before; took > memoryLimit/2 {
		t.Errorf("the caches took %d MiB, want %d at most", took>>20, memoryLimit>>21)
	} else {
		t.Logf("the caches took %d MiB at most", took>>20)
	}
}

// fill makes 400 pods of 1.2 MB and 2,000 claims of 250 KiB.
func fill(t *testing.T, config *rest.Config) {
	t.Helper()
	scheme, err := program.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	api, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	var objects []func() client.Object
	for i := range 400 {
		objects = append(objects, func() client.Object {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("pod-", i), Labels: map[string]string{contract.LabelApp: contract.LabelAppLauncher}}}
			p.Spec.SchedulerName = "nobody"
			p.Spec.Containers = []corev1.Container{{Name: "a", Image: "a", Env: []corev1.EnvVar{{Name: "A", Value: strings.Repeat("x", 1_200_000)}}}}
			return p
		})
	}
	for i := range 2000 {
		objects = append(objects, func() client.Object {
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("claim-", i), Annotations: map[string]string{"note": strings.Repeat("x", 250<<10)}}}
			claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
			claim.Spec.StorageClassName = new("none")
			claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
			return claim
		})
	}
	next := make(chan func() client.Object)
	var makers sync.WaitGroup
	for range 4 {
		makers.Go(func() {
			for object := range next {
				if err := api.Create(t.Context(), object()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for _, object := range objects {
		next <- object
	}
	close(next)
	makers.Wait()
}

// runCache fills the caches, and lets them be.
func runCache(t *testing.T, config *rest.Config) {
	t.Helper()
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(memoryLimit * 9 / 10))
	scheme, err := program.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	options := cacheOptions("vmlet", "vmlet")
	options.Scheme = scheme
	objects, err := cache.New(config, options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- objects.Start(ctx) }()
	for _, o := range []client.Object{&corev1.Pod{}, &corev1.PersistentVolumeClaim{}} {
		if _, err := objects.GetInformer(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	var pods corev1.PodList
	var claims corev1.PersistentVolumeClaimList
	if err := objects.List(ctx, &pods); err != nil || len(pods.Items) < 400 {
		t.Fatalf("%d pods, %v", len(pods.Items), err)
	}
	if err := objects.List(ctx, &claims); err != nil || len(claims.Items) < 2000 {
		t.Fatalf("%d claims, %v", len(claims.Items), err)
	}
	cancel()
	<-ended
}

// peak is the most memory that this process has had, in bytes.
func peak(t *testing.T) int64 {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := bytes.Cut(status, []byte("VmHWM:"))
	field, _, _ := strings.Cut(strings.TrimSpace(string(after)), " ")
	kib, err := strconv.ParseInt(field, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
