package servertest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/vmlet/vmlet/autopilot/catalog"
	"github.com/vmlet/vmlet/autopilot/facts"
	"github.com/vmlet/vmlet/autopilot/program"
	"github.com/vmlet/vmlet/endpoints"
	"github.com/vmlet/vmlet/test/guest"
	"github.com/vmlet/vmlet/test/suites"
)

// patience is for one step: a machine may be slow. No test waits for it to pass.
const patience = 3 * time.Minute

// server is an API server for one test function.
type server struct {
	env    *envtest.Environment
	config *rest.Config
	api    dynamic.Interface
}

// TestMain has the libraries say nothing: their loggers are the process's, and can't be changed while
// one of them runs.
func TestMain(m *testing.M) {
	quiet := logr.FromSlogHandler(slog.DiscardHandler)
	ctrllog.SetLogger(quiet)
	klog.SetLogger(quiet)
	os.Exit(suites.StartsVMs(m))
}

func start(t *testing.T) *server {
	t.Helper()
	if testing.Short() {
		t.Skip("it starts an API server")
	}
	binaries, err := guest.Cached("kubernetes")
	if err != nil {
		t.Skip(err)
	}
	s := &server{env: &envtest.Environment{BinaryAssetsDirectory: binaries, ControlPlaneStartTimeout: patience, ControlPlaneStopTimeout: patience}}
	if s.config, err = s.env.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.env.Stop(); err != nil {
			t.Error(err)
		}
	})
	s.config.QPS, s.config.Burst = 200, 400
	if s.api, err = dynamic.NewForConfig(s.config); err != nil {
		t.Fatal(err)
	}
	return s
}

// autopilot is one that runs, with a namespace and a catalogue of its own.
type autopilot struct {
	*server
	t         *testing.T
	namespace string
	files     fstest.MapFS
	catalog   *catalog.Catalog
}

// files of a catalogue; NS in them is the namespace's name.
type files map[string]string

func (s *server) autopilot(t *testing.T, f files) *autopilot {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	a := &autopilot{server: s, t: t, namespace: name[max(0, len(name)-50):], files: make(fstest.MapFS)}
	a.namespace = strings.Trim(a.namespace, "-")
	for path, text := range f {
		a.files[path] = &fstest.MapFile{Data: []byte(strings.ReplaceAll(text, "NS", a.namespace))}
	}
	var err error
	if a.catalog, err = catalog.Load(a.files); err != nil {
		t.Fatal(err)
	}
	a.create("v1", "Namespace", "", a.namespace, nil)
	return a
}

// run starts a replica. stop ends it and waits. A replica that loses its lease begins again, as the
// kubelet has it.
func (a *autopilot) run() (metrics *prometheus.Registry, stop func()) {
	a.t.Helper()
	return a.runAs(a.config)
}

func (a *autopilot) runAs(config *rest.Config) (metrics *prometheus.Registry, stop func()) {
	ctx, cancel := context.WithCancel(a.t.Context())
	metrics = prometheus.NewRegistry()
	var all sync.WaitGroup
	log := slog.New(slog.DiscardHandler)
	if os.Getenv("VMLET_TEST_LOG") != "" {
		log = slog.New(slog.NewTextHandler(a.t.Output(), nil))
	}
	all.Go(func() {
		for ctx.Err() == nil {
			registry := prometheus.NewRegistry()
			metrics.MustRegister(registry)
			err := program.Run(ctx, program.Options{
				Config: config, Catalog: a.catalog, Namespace: a.namespace, Registry: registry, Log: log,
				Endpoints: endpoints.Config{},
			})
			metrics.Unregister(registry)
			if err != nil {
				a.t.Logf("replica ended: %v", err)
			}
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		all.Wait()
	})
	a.t.Cleanup(stop)
	return metrics, stop
}

// resource is how a kind is addressed.
func resource(version, kind string) schema.GroupVersionResource {
	return facts.Resource(schema.FromAPIVersionAndKind(version, kind))
}

func (s *server) create(version, kind, namespace, name string, rest map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: rest}
	if o.Object == nil {
		o.Object = make(map[string]any)
	}
	o.SetAPIVersion(version)
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	var made *unstructured.Unstructured
	// A kind that is new is not found for a moment.
	err := until(func() (err error) {
		made, err = s.api.Resource(resource(version, kind)).Namespace(namespace).Create(context.Background(), o, metav1.CreateOptions{FieldManager: "somebody"})
		return err
	})
	if err != nil {
		panic(fmt.Errorf("%s %s/%s: %w", kind, namespace, name, err))
	}
	return made
}

// get returns an object of the autopilot's namespace; nil: there is none.
func (a *autopilot) get(version, kind, name string) *unstructured.Unstructured {
	a.t.Helper()
	o, err := a.api.Resource(resource(version, kind)).Namespace(a.namespace).Get(a.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return o
}

func (a *autopilot) configMap(name string) *unstructured.Unstructured {
	return a.get("v1", "ConfigMap", name)
}

// merge changes an object of the autopilot's namespace by a merge patch, as YAML.
func (a *autopilot) merge(kind, name, patch string) {
	a.t.Helper()
	text, err := yaml.YAMLToJSON([]byte(patch))
	if err == nil {
		_, err = a.api.Resource(resource("v1", kind)).Namespace(a.namespace).Patch(a.t.Context(), name, types.MergePatchType, text, metav1.PatchOptions{FieldManager: "somebody"})
	}
	if err != nil {
		a.t.Fatal(err)
	}
}

// annotate sets annotations of a ConfigMap below platform.kubevirt.io; null removes one.
func (a *autopilot) annotate(name, key, value string) {
	a.t.Helper()
	a.merge("ConfigMap", name, fmt.Sprintf("metadata: {annotations: {platform.kubevirt.io/%s: %s}}", key, value))
}

// anchored makes the ConfigMap that is the anchor, with a gate.
func (a *autopilot) anchored(gate string) {
	a.t.Helper()
	a.create("v1", "ConfigMap", a.namespace, "vmlet-platform", nil)
	a.annotate("vmlet-platform", "autopilot", gate)
}

func (a *autopilot) delete(version, kind, name string) {
	a.t.Helper()
	err := a.api.Resource(resource(version, kind)).Namespace(a.namespace).Delete(a.t.Context(), name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		a.t.Fatal(err)
	}
}

// data is a key of a ConfigMap; "" if there is neither.
func (a *autopilot) data(name, key string) string {
	o := a.configMap(name)
	if o == nil {
		return ""
	}
	value, _, _ := unstructured.NestedString(o.Object, "data", key)
	return value
}

// hasData waits until a key of a ConfigMap has a value; "": that there is neither.
func (a *autopilot) hasData(name, key, want string) {
	a.t.Helper()
	a.until(fmt.Sprintf("%s of ConfigMap %s is %q", key, name, want), func() error {
		if got := a.data(name, key); got != want {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
}

// until waits for a condition.
func (a *autopilot) until(what string, is func() error) {
	a.t.Helper()
	if err := until(is); err != nil {
		a.t.Fatalf("%s: %v\n%s", what, err, strings.Join(a.events(), "\n"))
	}
}

func until(is func() error) (err error) {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if err = is(); err == nil {
			return nil
		}
	}
	return err
}

// events are those of the autopilot's namespace: REASON: NOTE.
func (a *autopilot) events() (all []string) {
	list, err := a.api.Resource(schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}).Namespace(a.namespace).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return []string{err.Error()}
	}
	for _, e := range list.Items {
		note, _, _ := unstructured.NestedString(e.Object, "note")
		reason, _, _ := unstructured.NestedString(e.Object, "reason")
		all = append(all, reason+": "+note)
	}
	return all
}

// said waits for an event that has all these words.
func (a *autopilot) said(words ...string) {
	a.t.Helper()
	a.until(fmt.Sprintf("event with %q", words), func() error {
		for _, e := range a.events() {
			has := true
			for _, w := range words {
				has = has && strings.Contains(e, w)
			}
			if has {
				return nil
			}
		}
		return errors.New("there is none")
	})
}

// metric is the value of a gauge or counter whose labels have the values given, in any order; -100:
// there is none.
func metric(t *testing.T, from *prometheus.Registry, name string, labels ...string) float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "kubevirt_autopilot_"+name {
			continue
		}
		for _, m := range f.GetMetric() {
			has := make(map[string]bool)
			for _, l := range m.GetLabel() {
				has[l.GetValue()] = true
			}
			all := true
			for _, l := range labels {
				all = all && has[l]
			}
			if all && m.GetGauge() != nil {
				return m.GetGauge().GetValue()
			}
			if all && m.GetCounter() != nil {
				return m.GetCounter().GetValue()
			}
		}
	}
	return -100
}

// shows waits until a metric has a value.
func (a *autopilot) shows(from *prometheus.Registry, want float64, name string, labels ...string) {
	a.t.Helper()
	a.until(fmt.Sprintf("%s%q is %v", name, labels, want), func() error {
		if got := metric(a.t, from, name, labels...); got != want {
			return fmt.Errorf("it is %v", got)
		}
		return nil
	})
}
