package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vmlet/vmlet/autopilot/catalog"
	"github.com/vmlet/vmlet/autopilot/program"
	"github.com/vmlet/vmlet/endpoints"
	"github.com/vmlet/vmlet/internal/memorylimit"
)

// defaultNamespace is where deploy/ puts vmlet.
const defaultNamespace = "vmlet"

// podNamespace is the variable that deploy/autopilot sets.
const podNamespace = "POD_NAMESPACE"

func connect(kubeconfig string) (*rest.Config, error) {
	c, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	c.UserAgent = program.Name
	c.QPS, c.Burst = 50, 100 // all assets at once, after a change of the platform object
	return c, nil
}

func runCommand() *cobra.Command {
	var o program.Options
	var kubeconfig, level, format string
	o.Endpoints.Complete(true)
	cmd := &cobra.Command{
		Use: "run", Short: "Apply the catalogue, and keep it so", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := check(&o.Endpoints); err != nil {
				return usage{err}
			}
			if o.Log, err = newLog(cmd.ErrOrStderr(), level, format); err != nil {
				return usage{err}
			}
			if o.Catalog, err = catalog.Embedded(); err != nil {
				return err
			}
			if o.Config, err = connect(kubeconfig); err != nil {
				return err
			}
			memorylimit.Set(o.Log, memlimit.FromCgroup)
			go memorylimit.Settle(cmd.Context(), o.Log)
			return program.Run(cmd.Context(), o)
		},
	}
	set, e := cmd.Flags(), &o.Endpoints
	set.StringVar(&o.Namespace, "namespace", cmp.Or(os.Getenv(podNamespace), defaultNamespace), "`NAMESPACE` of the autopilot's own objects (default: $"+podNamespace+")")
	set.StringVar(&o.Configuration, "configuration-namespace", "", "`NAMESPACE` whose HyperConverged or KubeVirt object controls the autopilot (default: that of --namespace)")
	set.StringVar(&kubeconfig, "kubeconfig", "", "`FILE` that says where the API server is (default: the pod's ServiceAccount)")
	set.StringVar(&level, "log-level", "info", "`LEVEL`: debug, info, warn or error")
	set.StringVar(&format, "log-format", "text", "`FORMAT`: text or json")
	set.StringVar(&e.Metrics.Address, "metrics-address", e.Metrics.Address, "`HOST:PORT` at which /metrics is served, or off")
	set.StringVar(&e.Metrics.Authentication, "metrics-authentication", e.Metrics.Authentication, "`HOW` callers of /metrics are checked: none, or token (callers with the right to get /metrics)")
	set.StringVar(&e.Metrics.TLS.Cert, "metrics-tls-cert", "", "`FILE` with the certificate of /metrics, in PEM")
	set.StringVar(&e.Metrics.TLS.Key, "metrics-tls-key", "", "`FILE` with the certificate's key, in PEM")
	set.StringVar(&e.Debug.Address, "debug-address", e.Debug.Address, "`HOST:PORT` at which /debug is served, on the loopback, or off")
	set.StringVar(&e.Health.Address, "health-address", e.Health.Address, "`HOST:PORT` at which /healthz and /readyz are served, or off")
	return cmd
}

// check completes addresses and returns all their faults.
func check(c *endpoints.Config) error {
	c.Complete(true)
	var faults []error
	c.Validate(func(key, format string, args ...any) {
		faults = append(faults, fmt.Errorf("--%s: %s", strings.ReplaceAll(key, ".", "-"), fmt.Sprintf(format, args...)))
	})
	return errors.Join(faults...)
}

// newLog makes the program's log, to which its libraries write, too.
func newLog(to io.Writer, level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level: %q is none of debug, info, warn and error", level)
	}
	options := &slog.HandlerOptions{Level: l}
	var h slog.Handler = slog.NewTextHandler(to, options)
	switch format {
	case "text":
	case "json":
		h = slog.NewJSONHandler(to, options)
	default:
		return nil, fmt.Errorf("--log-format: %q is neither text nor json", format)
	}
	bridge := logr.FromSlogHandler(h)
	ctrllog.SetLogger(bridge)
	klog.SetLogger(bridge)
	return slog.New(h), nil
}
