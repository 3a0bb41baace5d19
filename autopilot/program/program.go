// Package program puts vmlet-autopilot together: leader election, the controller, and what each
// replica serves. Start reading at Run.
package program

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	eventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmlet/vmlet/autopilot/apply"
	"github.com/vmlet/vmlet/autopilot/catalog"
	"github.com/vmlet/vmlet/autopilot/controller"
	"github.com/vmlet/vmlet/autopilot/debug"
	"github.com/vmlet/vmlet/autopilot/evaluate"
	"github.com/vmlet/vmlet/autopilot/facts"
	"github.com/vmlet/vmlet/autopilot/metrics"
	"github.com/vmlet/vmlet/autopilot/render"
	"github.com/vmlet/vmlet/endpoints"
)

// Name is the program's: of its lease, its events and its ServiceAccount.
const Name = "vmlet-autopilot"

// Leadership changes hands as that of vmlet-controller does.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
	endPatience   = 20 * time.Second
)

// Options are what the program is started with.
type Options struct {
	Config    *rest.Config
	Catalog   *catalog.Catalog
	Namespace string
	// Configuration is the namespace of the HyperConverged or KubeVirt object that counts.
	Configuration string
	Endpoints     endpoints.Config
	Log           *slog.Logger
	// Registry is where metrics are registered and served from; nil: controller-runtime's.
	Registry ctrlmetrics.RegistererGatherer
}

// Run runs until ctx ends. It returns an error when the lease is lost.
func Run(ctx context.Context, o Options) error {
	if o.Registry == nil {
		o.Registry = ctrlmetrics.Registry
	}
	api, err := dynamic.NewForConfig(o.Config)
	if err != nil {
		return err
	}
	m, err := manager.New(o.Config, manager.Options{
		Metrics:        metricsserver.Options{BindAddress: "0"}, // package endpoints serves them
		LeaderElection: true, LeaderElectionID: Name, LeaderElectionNamespace: o.Namespace, LeaderElectionResourceLock: "leases",
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 new(leaseDuration), RenewDeadline: new(renewDeadline), RetryPeriod: new(retryPeriod),
		GracefulShutdownTimeout: new(endPatience),
	})
	if err != nil {
		return err
	}
	all := metrics.New()
	if err := o.Registry.Register(all); err != nil {
		return err
	}
	err = m.Add(manager.RunnableFunc(func(ctx context.Context) error {
		recorder, err := o.recorder(ctx)
		if err != nil {
			return err
		}
		return controller.Run(ctx, controller.Options{
			API: api, Catalog: o.Catalog, Metrics: all, Events: recorder, Namespace: o.Namespace, Configuration: o.Configuration, Now: time.Now, Log: o.Log,
		})
	}))
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	wait, err := o.serve(ctx, api)
	if err == nil {
		err = m.Start(ctx)
	}
	end()
	wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// recorder records events from now on. The manager's begins to listen after its first event, which
// is lost.
func (o Options) recorder(ctx context.Context) (events.EventRecorder, error) {
	api, err := eventsv1.NewForConfig(o.Config)
	if err != nil {
		return nil, err
	}
	all := events.NewBroadcaster(&events.EventSinkImpl{Interface: api})
	context.AfterFunc(ctx, all.Shutdown)
	return all.NewRecorder(clientgoscheme.Scheme, Name), all.StartRecordingToSinkWithContext(ctx)
}

// serve serves metrics, debug pages and health until ctx ends, whether this replica leads or not.
func (o Options) serve(ctx context.Context, api dynamic.Interface) (wait func(), err error) {
	reader := apply.Reader{API: api}
	reached := endpoints.Check{Name: "api-server", Look: func(ctx context.Context) error {
		_, err := reader.Get(ctx, facts.ConfigMaps(), o.Namespace, "vmlet-platform")
		return err
	}}
	live, ready := endpoints.NewChecks("healthz", o.Log), endpoints.NewChecks("readyz", o.Log, reached)
	pages := debug.Pages{Catalog: o.Catalog, Look: Evaluator(o.Catalog, reader), Facts: func(ctx context.Context) (facts.Facts, error) {
		return facts.Gather(ctx, reader, o.Namespace, o.Configuration)
	}}
	all, err := o.metrics()
	if err != nil {
		return func() {}, err
	}
	servers, err := endpoints.Listen(o.Endpoints, endpoints.Handlers{
		Health: endpoints.Health(live, ready), Debug: pages.Handler(), Metrics: all,
	}, o.Log)
	if err != nil {
		return func() {}, fmt.Errorf("endpoints: %w", err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { servers.Serve(ctx) })
	return serving.Wait, nil
}

// metrics answers with them anyone who may have them.
func (o Options) metrics() (http.Handler, error) {
	all := promhttp.HandlerFor(o.Registry, promhttp.HandlerOpts{})
	if o.Endpoints.Metrics.Authentication != endpoints.AuthenticationToken {
		return all, nil
	}
	clients, err := kubernetes.NewForConfig(o.Config)
	if err != nil {
		return nil, err
	}
	return endpoints.Authenticated(all, &endpoints.Reviews{
		Authentication: clients.AuthenticationV1().RESTClient(), Authorization: clients.AuthorizationV1().RESTClient(),
	}, o.Log), nil
}

// Evaluator looks at assets of a catalogue through a reader, and remembers nothing.
func Evaluator(c *catalog.Catalog, from facts.Reader) evaluate.Evaluator {
	return evaluate.Evaluator{
		Renderer: render.Renderer{Files: c.Active(), From: from},
		Live: func(ctx context.Context, _ *catalog.Asset, of schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
			return from.Get(ctx, of, namespace, name)
		},
	}
}
