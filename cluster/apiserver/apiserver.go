// Package apiserver puts vmlet-api together: the webhooks of package admission and the aggregated
// API of package subresources, behind a certificate that renews itself. It decides nothing itself. Start reading at Run.
package apiserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/admission"
	"github.com/vmlet/vmlet/cluster/installation"
	"github.com/vmlet/vmlet/cluster/metrics"
	"github.com/vmlet/vmlet/cluster/program"
	"github.com/vmlet/vmlet/cluster/settings"
	"github.com/vmlet/vmlet/cluster/webhookpath"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/endpoints"
	hypervisors "github.com/vmlet/vmlet/hypervisor/standard"
	"github.com/vmlet/vmlet/internal/certificate"
)

// name is the program's, as others see it.
const name = contract.CommonNameAPI

// bodyPatience is how long a review may take to arrive: as long as the API server waits for all.
const bodyPatience = 10 * time.Second

// Options are what vmlet-api is started with.
type Options struct {
	program.Options
	// Port of the webhooks, SubresourcesPort of the aggregated API.
	Port, SubresourcesPort int
	// KubeVirt is the version of KubeVirt whose API is followed: virtctl compares it with its own.
	KubeVirt string
	Version  string
	Log      *slog.Logger
}

// Run serves until ctx ends. It returns an error where kubevirt.io belongs to another
// controller.
func Run(ctx context.Context, o Options) error {
	config, err := o.Connect(name + "/" + o.Version)
	if err != nil {
		return err
	}
	groups, err := program.API(config)
	if err != nil {
		return err
	}
	keeper := newKeeper(o, groups.Certificates)
	m, live, err := newManager(config, o)
	if err != nil {
		return err
	}
	now := settings.Settings{From: m.GetCache(), Namespace: o.Configuration}
	keys := func(ctx context.Context) (webhookpath.Keys, error) {
		return webhookpath.Read(ctx, m.GetCache(), o.Namespace)
	}
	hooks := newServer("--webhook-port", o.Port, webhooks(admission.Handlers(live, rules(o, live, now)), keys),
		&tls.Config{GetCertificate: keeper.GetCertificate}, o.Log)
	hooks.http.ReadTimeout = bodyPatience
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wait, err := o.Serve(ctx, groups.Reviews, o.Log, liveness(keeper, hooks), readiness(keeper, hooks, now, keys))
	if err != nil {
		return err
	}
	api, err := newAggregated(config, live, keeper, o)
	if err == nil {
		err = start(ctx, m, o, keeper, hooks, api)
	}
	cancel()
	wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// webhooks serves the webhooks to the API server alone.
func webhooks(handlers map[string]http.Handler, keys func(context.Context) (webhookpath.Keys, error)) http.Handler {
	mux := http.NewServeMux()
	for path, handler := range handlers {
		mux.Handle(path, handler)
	}
	gate := admission.Gate(mux)
	return webhookpath.Guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Reviews that wait for each other are connections of the API server's: no stranger's take their place.
		endpoints.Known(r.Context())
		gate.ServeHTTP(w, r)
	}), keys)
}

func newKeeper(o Options, api rest.Interface) *certificate.Keeper {
	return certificate.New(certificate.Options{
		API: api, NamePrefix: name + "-", Log: o.Log,
		Request: certificate.Request{
			Signer: contract.SignerName, CommonName: name, DNSNames: []string{fmt.Sprintf("%s.%s.svc", o.Names.API, o.Namespace)},
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth, certificatesv1.UsageClientAuth},
		},
	})
}

// newManager makes the manager, whose cache is of the cluster's configuration and the one Secret, and
// a client that reads all else from the API server: it is read once for each request.
func newManager(config *rest.Config, o Options) (manager.Manager, client.Client, error) {
	scheme, err := program.Scheme()
	if err != nil {
		return nil, nil, err
	}
	live, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, nil, err
	}
	m, err := manager.New(config, manager.Options{
		Scheme: scheme, Cache: cacheOptions(o),
		Metrics: metricsserver.Options{BindAddress: "0"}, // package endpoints serves them
	})
	return m, live, err
}

// cacheOptions have nothing cached that somebody made in another namespace. They name no kind of kubevirt.io, which
// may not be there yet.
func cacheOptions(o Options) cache.Options {
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(), DefaultNamespaces: map[string]cache.Config{o.Configuration: {}},
		ByObject: map[client.Object]cache.ByObject{&corev1.Secret{}: webhookpath.Cached(o.Namespace)},
	}
}

// start runs the manager, once it is known that kubevirt.io is vmlet's.
func start(ctx context.Context, m manager.Manager, o Options, keeper *certificate.Keeper, servers ...manager.Runnable) error {
	if err := installation.Await(ctx, m.GetAPIReader(), o.Namespace, o.Names.API, o.Log); err != nil {
		return err
	}
	for _, o := range []client.Object{&kubevirtv1.KubeVirt{}, &corev1.Secret{}} { // filled at the start, not by the first request
		if _, err := m.GetCache().GetInformer(ctx, o); err != nil {
			return err
		}
	}
	for _, s := range append(servers, program.Everywhere(keeper.Run)) {
		if err := m.Add(s); err != nil {
			return err
		}
	}
	if err := ctrlmetrics.Registry.Register(&metrics.Collector{Certificate: keeper.NotAfter}); err != nil {
		return err
	}
	return m.Start(ctx)
}

// liveness fails where only a new process helps: nobody answers any more. Without a certificate
// nobody could, and a new process would have none either.
func liveness(keeper *certificate.Keeper, hooks *server) []endpoints.Check {
	return []endpoints.Check{{Name: "webhooks", Look: func(ctx context.Context) error {
		if keeper.Err() != nil {
			return nil
		}
		return hooks.answers(ctx)
	}}}
}

func readiness(keeper *certificate.Keeper, hooks *server, now settings.Settings, keys func(context.Context) (webhookpath.Keys, error)) []endpoints.Check {
	return []endpoints.Check{
		{Name: "certificate", Look: func(context.Context) error { return keeper.Err() }},
		{Name: "webhooks", Look: hooks.answers},
		{Name: "configuration", Look: func(ctx context.Context) error {
			_, err := now.Configuration(ctx)
			return err
		}},
		{Name: "webhook-path", Look: func(ctx context.Context) error {
			_, err := keys(ctx)
			return err
		}},
	}
}

func rules(o Options, live client.Reader, now settings.Settings) admission.Rules {
	account := func(name string) string { return "system:serviceaccount:" + o.Namespace + ":" + name }
	return admission.Rules{
		Settings:    now,
		Own:         []string{account(o.Names.Controller), account(o.Names.API)},
		Hypervisors: hypervisors.Registry().Words(),
		HasCDI: func(ctx context.Context) (bool, error) {
			err := live.Get(ctx, client.ObjectKey{Name: "datavolumes.cdi.kubevirt.io"}, installation.Definition())
			return err == nil, client.IgnoreNotFound(err)
		},
	}
}
