// Package program has what vmlet-controller and vmlet-api have in common: flags, the log, the API
// server's address, and what they serve about themselves. It must not know what either does.
package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	instancetypev1 "github.com/vmlet/vmlet/api/instancetype/v1"
	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	poolv1 "github.com/vmlet/vmlet/api/pool/v1beta1"
	"github.com/vmlet/vmlet/cluster/installation"
	"github.com/vmlet/vmlet/endpoints"
)

// Rates at which the API server is called at most, per second: KubeVirt's defaults.
const (
	qps   = 200
	burst = 400
)

// serviceAccountNamespace is where a pod finds its own namespace.
const serviceAccountNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Options are the flags that both programs have.
type Options struct {
	Namespace, Kubeconfig string
	// Configuration is the namespace of the KubeVirt object that counts.
	Configuration string
	Names         installation.Names
	Endpoints     endpoints.Config

	logLevel, logFormat string
}

// Flags adds them to a command.
func (o *Options) Flags(cmd *cobra.Command) {
	o.Endpoints.Complete(true)
	set := cmd.Flags()
	set.StringVar(&o.Namespace, "namespace", "", "`NAMESPACE` of vmlet's own objects (default: the pod's)")
	set.StringVar(&o.Configuration, "configuration-namespace", "", "`NAMESPACE` whose KubeVirt object configures the cluster (default: that of vmlet's own objects)")
	names := installation.StandardNames()
	set.StringVar(&o.Names.Agent, "agent-name", names.Agent, "`NAME` of the agents' DaemonSet and ServiceAccount")
	set.StringVar(&o.Names.Controller, "controller-name", names.Controller, "`NAME` of vmlet-controller's Deployment and ServiceAccount")
	set.StringVar(&o.Names.API, "api-name", names.API, "`NAME` of vmlet-api's Deployment, Service and ServiceAccount")
	set.StringVar(&o.Kubeconfig, "kubeconfig", "", "`FILE` that says where the API server is (default: the pod's ServiceAccount)")
	set.StringVar(&o.logLevel, "log-level", "info", "`LEVEL`: debug, info, warn or error")
	set.StringVar(&o.logFormat, "log-format", "text", "`FORMAT`: text or json")
	e := &o.Endpoints
	set.StringVar(&e.Metrics.Address, "metrics-address", e.Metrics.Address, "`HOST:PORT` at which /metrics is served, or off")
	set.StringVar(&e.Metrics.Authentication, "metrics-authentication", e.Metrics.Authentication, "`HOW` callers of /metrics are checked: none, or token (callers with the right to get /metrics)")
	set.StringVar(&e.Metrics.TLS.Cert, "metrics-tls-cert", "", "`FILE` with the certificate of /metrics, in PEM")
	set.StringVar(&e.Metrics.TLS.Key, "metrics-tls-key", "", "`FILE` with the certificate's key, in PEM")
	set.StringVar(&e.Debug.Address, "debug-address", e.Debug.Address, "`HOST:PORT` at which /debug is served, on the loopback, or off")
	set.StringVar(&e.Health.Address, "health-address", e.Health.Address, "`HOST:PORT` at which /healthz and /readyz are served, or off")
}

// Check completes the options and returns all their faults at once.
func (o *Options) Check() error {
	o.Endpoints.Complete(true)
	var faults []error
	o.Endpoints.Validate(func(key, format string, args ...any) {
		flag := "--" + strings.ReplaceAll(key, ".", "-")
		faults = append(faults, fmt.Errorf("%s: %s", flag, fmt.Sprintf(format, args...)))
	})
	for _, name := range []struct{ flag, value string }{
		{"--agent-name", o.Names.Agent}, {"--controller-name", o.Names.Controller}, {"--api-name", o.Names.API},
	} {
		if name.value == "" {
			faults = append(faults, fmt.Errorf("%s is empty: name what deploy/ calls it, or leave the flag out", name.flag))
		}
	}
	if o.Namespace == "" {
		text, err := os.ReadFile(serviceAccountNamespace)
		if err != nil {
			faults = append(faults, fmt.Errorf("--namespace is required outside of a pod: %w", err))
		}
		o.Namespace = strings.TrimSpace(string(text))
	}
	o.Configuration = cmp.Or(o.Configuration, o.Namespace)
	return errors.Join(faults...)
}

// NewLog makes the program's log, to which its libraries write, too.
func (o *Options) NewLog(to io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return nil, fmt.Errorf("--log-level: %q is none of debug, info, warn and error", o.logLevel)
	}
	options := &slog.HandlerOptions{Level: level}
	var h slog.Handler
	switch o.logFormat {
	case "text":
		h = slog.NewTextHandler(to, options)
	case "json":
		h = slog.NewJSONHandler(to, options)
	default:
		return nil, fmt.Errorf("--log-format: %q is neither text nor json", o.logFormat)
	}
	l := logr.FromSlogHandler(h)
	ctrllog.SetLogger(l)
	klog.SetLogger(l)
	return slog.New(h), nil
}

// Connect returns how the API server is reached. It does not call it.
func (o *Options) Connect(userAgent string) (*rest.Config, error) {
	c, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	c.UserAgent, c.QPS, c.Burst = userAgent, qps, burst
	return c, nil
}

// Scheme has the kinds that the programs read and write.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	return s, errors.Join(clientgoscheme.AddToScheme(s), kubevirtv1.AddToScheme(s), instancetypev1.AddToScheme(s), poolv1.AddToScheme(s))
}

// Serve serves health, metrics and debug pages until ctx ends. wait returns when nothing is
// served any more.
func (o *Options) Serve(ctx context.Context, reviews *endpoints.Reviews, log *slog.Logger, live, ready []endpoints.Check) (wait func(), err error) {
	l, r := endpoints.NewChecks("healthz", log, live...), endpoints.NewChecks("readyz", log, ready...)
	h := endpoints.Handlers{
		Health:  endpoints.Health(l, r),
		Debug:   endpoints.Debug(endpoints.Pages{Live: l, Ready: r}),
		Metrics: promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{}),
	}
	if o.Endpoints.Metrics.Authentication == endpoints.AuthenticationToken {
		h.Metrics = endpoints.Authenticated(h.Metrics, reviews, log)
	}
	servers, err := endpoints.Listen(o.Endpoints, h, log)
	if err != nil {
		return nil, err
	}
	var all sync.WaitGroup
	all.Go(func() { servers.Serve(ctx) })
	return all.Wait, nil
}

// Everywhere is a manager's Runnable that each replica of a program runs, whether it leads or not.
type Everywhere func(context.Context)

// Start runs until ctx ends.
func (e Everywhere) Start(ctx context.Context) error {
	e(ctx)
	return nil
}

// NeedLeaderElection returns false.
func (e Everywhere) NeedLeaderElection() bool { return false }

// Groups are those of the API server's that the programs call without a cache.
type Groups struct {
	Certificates rest.Interface
	Reviews      *endpoints.Reviews
}

// API makes their clients.
func API(config *rest.Config) (Groups, error) {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return Groups{}, err
	}
	return Groups{
		Certificates: clients.CertificatesV1().RESTClient(),
		Reviews: &endpoints.Reviews{
			Authentication: clients.AuthenticationV1().RESTClient(), Authorization: clients.AuthorizationV1().RESTClient(),
		},
	}, nil
}
