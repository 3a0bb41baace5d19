// Package controller puts vmlet-controller together from the cluster half's packages. It decides
// nothing itself. Start reading at Run.
package controller

import (
	"context"
	"errors"
	"log/slog"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/calls"
	"github.com/vmlet/vmlet/cluster/certificates"
	"github.com/vmlet/vmlet/cluster/claimuse"
	"github.com/vmlet/vmlet/cluster/claimwatch"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/defaults"
	"github.com/vmlet/vmlet/cluster/installation"
	"github.com/vmlet/vmlet/cluster/instance"
	"github.com/vmlet/vmlet/cluster/instance/observe"
	"github.com/vmlet/vmlet/cluster/launcher"
	"github.com/vmlet/vmlet/cluster/machine"
	"github.com/vmlet/vmlet/cluster/metrics"
	"github.com/vmlet/vmlet/cluster/nodes"
	"github.com/vmlet/vmlet/cluster/pool"
	"github.com/vmlet/vmlet/cluster/program"
	"github.com/vmlet/vmlet/cluster/replicaset"
	"github.com/vmlet/vmlet/cluster/saves"
	"github.com/vmlet/vmlet/cluster/settings"
	"github.com/vmlet/vmlet/cluster/webhookpath"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/endpoints"
	"github.com/vmlet/vmlet/internal/certificate"
)

// name is the program's: of its lease, its events and its certificate.
const name = contract.CommonNameController

// Leadership changes hands within leaseDuration of a leader's death; a leader that is ended
// releases it at once. A leader that can't renew it for renewDeadline ends, which leaves 5 s for
// its last write. Kubernetes' own controllers have the same times.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// endPatience is how long reconciliations under way may take to end: less than a pod's grace.
const endPatience = 20 * time.Second

// leavePatience is for three requests after that.
const leavePatience = 5 * time.Second

// Options are what vmlet-controller is started with.
type Options struct {
	program.Options
	// Launcher is the image of vmlet's own programs and VMMs.
	Launcher string
	// ClusterDomain is that of the cluster's DNS; empty: cluster.local.
	ClusterDomain string
	// Pod is the name of this program's own pod.
	Pod string
	// SavesPerNode is how many VMs of a node are saved at once.
	SavesPerNode int
	// PoolBurst is how many VMs of a pool are made, changed or removed in one go; 0: pool.DefaultBurst.
	PoolBurst int
	Version   string
	Log       *slog.Logger
}

// Run runs the controller until ctx ends. It returns an error where kubevirt.io belongs to
// another controller, and when the lease is lost.
func Run(ctx context.Context, o Options) error {
	config, err := o.Connect(name + "/" + o.Version)
	if err != nil {
		return err
	}
	api, err := program.API(config)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	keeper := certificate.New(certificate.Options{
		API: api.Certificates, NamePrefix: name + "-", Log: o.Log,
		Request: certificate.Request{
			Signer: contract.SignerName, CommonName: contract.CommonNameController,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	})
	live := []endpoints.Check{{Name: "reconciliation", Look: notStuck(ctrlmetrics.Registry)}}
	ready := []endpoints.Check{{Name: "certificate", Look: func(context.Context) error { return keeper.Err() }}}
	wait, err := o.Serve(ctx, api.Reviews, o.Log, live, ready)
	if err != nil {
		return err
	}
	err = start(ctx, config, o, keeper, end)
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.Canceled) {
		err = cause
	}
	end(nil)
	wait()
	if errors.Is(err, context.Canceled) {
		return nil // by a signal
	}
	return err
}

// start runs the manager, once it is known that kubevirt.io is vmlet's. It returns the reason for
// which end was called, or context.Canceled if ctx has ended.
func start(ctx context.Context, config *rest.Config, o Options, keeper *certificate.Keeper, end context.CancelCauseFunc) error {
	m, err := newManager(config, o)
	if err != nil {
		return err
	}
	if err := installation.Await(ctx, m.GetAPIReader(), o.Namespace, o.Names.API, o.Log); err != nil {
		return err
	}
	parts, err := cache.New(config, cache.Options{
		HTTPClient: m.GetHTTPClient(), Scheme: m.GetScheme(), Mapper: m.GetRESTMapper(),
		DefaultTransform: cache.TransformStripManagedFields(), ByObject: installation.PluginParts(o.Namespace),
	})
	if err != nil {
		return err
	}
	authority := &certificates.Authority{Reader: m.GetAPIReader(), Writer: m.GetClient(), Namespace: o.Namespace}
	paths := &webhookpath.Store{Reader: m.GetAPIReader(), Writer: m.GetClient(), Namespace: o.Namespace}
	all := &installation.Installation{
		Client: m.GetClient(), Live: m.GetAPIReader(), Parts: parts, Namespace: o.Namespace, Names: o.Names, Configuration: o.Configuration,
		Roots: authority.Bundle, Paths: paths.Paths, Serve: authority.Serve, Version: o.Version, End: end, Log: o.Log,
	}
	if err := errors.Join(m.Add(parts), all.Setup(m), assemble(ctx, m, o, keeper, authority, end)); err != nil {
		return err
	}
	if err := m.Start(ctx); err != nil {
		return err
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), leavePatience)
	defer cancel()
	if err := all.Leave(last); err != nil {
		o.Log.Warn("webhook configurations may be left", "error", err)
	}
	return context.Cause(ctx)
}

func newManager(config *rest.Config, o Options) (manager.Manager, error) {
	scheme, err := program.Scheme()
	if err != nil {
		return nil, err
	}
	return manager.New(config, manager.Options{
		Scheme: scheme, Cache: cacheOptions(o.Namespace, o.Configuration), Client: clientOptions(),
		Metrics:        metricsserver.Options{BindAddress: "0"}, // package endpoints serves them
		LeaderElection: true, LeaderElectionID: name, LeaderElectionNamespace: o.Namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 new(leaseDuration), RenewDeadline: new(renewDeadline), RetryPeriod: new(retryPeriod),
		GracefulShutdownTimeout: new(endPatience),
	})
}

// assemble adds all parts but the installation to the manager.
func assemble(ctx context.Context, m manager.Manager, o Options, keeper *certificate.Keeper, authority *certificates.Authority, end func(error)) error {
	cdi, err := hasCDI(ctx, m.GetAPIReader(), m.GetCache(), end)
	if err != nil {
		return err
	}
	agents := nodes.New(nodes.Options{TLS: keeper.ClientConfig(), Log: o.Log})
	return errors.Join(
		m.Add(program.Everywhere(keeper.Run)),
		m.Add(manager.RunnableFunc(agents.Start)),
		follow(ctx, m.GetCache(), o.Namespace, agents),
		(&certificates.Signer{
			Client: m.GetClient(), Authority: authority, Programs: programs(o), Log: o.Log,
		}).SetupWithManager(m),
		setUpVMs(ctx, m, o, agents, cdi),
		count(ctx, m, closed(m.Elected())),
		ctrlmetrics.Registry.Register(&metrics.Collector{
			Certificate: keeper.NotAfter, Leads: closed(m.Elected()), Objects: m.GetCache(), Streams: agents.Streams,
		}),
	)
}

// programs get certificates.
func programs(o Options) certificates.Programs {
	return certificates.Programs{
		Namespace: o.Namespace, Agent: o.Names.Agent, Controller: o.Names.Controller, API: o.Names.API, Service: o.Names.API,
	}
}

// setUpVMs adds the controllers of pools, of sets of instances, of VirtualMachines and of their instances.
func setUpVMs(ctx context.Context, m manager.Manager, o Options, agents *nodes.Agents, cdi bool) error {
	core, err := corev1client.NewForConfigAndClient(m.GetConfig(), m.GetHTTPClient())
	if err != nil {
		return err
	}
	now, live := settings.Settings{From: m.GetCache(), Namespace: o.Configuration}, newPaged(m.GetAPIReader())
	uses := claimwatch.New(claimwatch.Options{
		API: claimwatch.Kubernetes{Core: core, Namespace: o.Namespace, Pod: o.Pod}, Needed: needed(ctx, m.GetCache()), Now: time.Now, Log: o.Log,
	})
	making := new(claimuse.Locks)
	called := calls.New[instance.Answers](calls.Options{Now: time.Now})
	saved := saves.New(saves.Options{PerNode: o.SavesPerNode, Client: agents.Client, Watch: watchClaims(uses), Now: time.Now})
	return errors.Join(
		m.Add(manager.RunnableFunc(uses.Run)),
		m.Add(manager.RunnableFunc(called.Run)),
		m.Add(manager.RunnableFunc(saved.Run)),
		setUpImports(ctx, m, o, now, live, making),
		(&pool.Reconciler{
			Client: m.GetClient(), Live: live, Events: distinct{m.GetEventRecorder(name)}, DataVolumes: cdi, Burst: o.PoolBurst, Now: time.Now,
		}).Setup(m),
		(&replicaset.Reconciler{
			Client: m.GetClient(), Live: live, Events: distinct{m.GetEventRecorder(name)}, Burst: o.PoolBurst, Now: time.Now,
		}).Setup(m),
		(&machine.Reconciler{Observer: &machine.Observer{
			Client: m.GetClient(), Live: live, Uses: uses, DataVolumes: cdi, Now: time.Now,
			Defaults: func(vmi *kubevirtv1.VirtualMachineInstance) {
				// A cache that has started does not fail; admission fills defaults in, too.
				if c, err := now.Configuration(ctx); err == nil {
					defaults.Instance(vmi, c)
				}
			},
			Configuration: func() configuration.Configuration {
				c, err := now.Configuration(ctx)
				if err != nil {
					return configuration.Default()
				}
				return c
			},
		}, Writer: &machine.Writer{Client: m.GetClient(), Live: live, Events: distinct{m.GetEventRecorder(name)}}}).Setup(ctx, m, uses.Changed()),
		(&instance.Reconciler{
			Observer: &observe.Observer{
				Client: m.GetClient(), Live: live, Agents: agents, Saves: saved, DataVolumes: cdi,
				PodName: launcher.PodName, Images: launcher.Images, Now: time.Now,
			},
			Client: m.GetClient(), Agents: agents, Events: distinct{m.GetEventRecorder(name)}, Saves: saved, Calls: called, Making: making,
			Attachment: func(vmi *kubevirtv1.VirtualMachineInstance, vm *corev1.Pod, claim string) (*corev1.Pod, error) {
				c, err := now.Configuration(ctx)
				return launcher.Attachment(vmi, vm, claim, c), err
			},
			Pod: func(vmi *kubevirtv1.VirtualMachineInstance, claims map[string]*corev1.PersistentVolumeClaim) (*corev1.Pod, error) {
				c, err := now.Configuration(ctx)
				if err != nil {
					return nil, err
				}
				in := convert.Input{Instance: vmi, Configuration: c, Claims: claims, Launcher: o.Launcher, ClusterDomain: o.ClusterDomain}
				if err := errors.Join(limited(ctx, m.GetClient(), live, &in), offered(ctx, m.GetClient(), &in), reached(ctx, live, &in)); err != nil {
					return nil, err
				}
				return launcher.Pod(in)
			},
		}).Setup(m, agents.Changed(), saved.Changed(), called.Changed()),
	)
}

// closed reports whether a channel has been closed.
func closed(c <-chan struct{}) func() bool {
	return func() bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
}
