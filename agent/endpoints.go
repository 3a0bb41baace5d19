package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/endpoints"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// progress is how far the agent has come.
type progress struct {
	// adopted: what ran is taken up. served: the API is. asked: the loop that asks
	// what the node can do has ended.
	adopted, served, unwatched atomic.Bool
}

// openEndpoints listens at the addresses of the configuration; nil: there are none.
// VMMs are asked for metrics until ctx ends.
func (p *program) openEndpoints(ctx context.Context) (serve func(context.Context), err error) {
	c := p.cfg.Endpoints
	if c.Metrics.Address == "" && c.Debug.Address == "" && c.Health.Address == "" {
		return func(context.Context) {}, nil
	}
	live := endpoints.NewChecks("healthz", p.cfg.Log, p.liveness()...)
	ready := endpoints.NewChecks("readyz", p.cfg.Log, p.readiness()...)
	h := endpoints.Handlers{
		Health: endpoints.Health(live, ready),
		Debug:  endpoints.Debug(endpoints.Pages{Labels: p.renderLabels, VMs: p.listing, Live: live, Ready: ready}),
	}
	wait := func() {}
	if c.Metrics.Address != "" {
		m := p.newMetrics(ctx)
		wait = m.Wait
		if h.Metrics, err = p.guarded(m.Handler()); err != nil {
			return nil, err
		}
	}
	servers, err := endpoints.Listen(c, h, p.cfg.Log)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) {
		servers.Serve(ctx)
		wait()
	}, nil
}

// guarded lets only those through who may, if that is asked for.
func (p *program) guarded(h http.Handler) (http.Handler, error) {
	if p.cfg.Endpoints.Metrics.Authentication != endpoints.AuthenticationToken {
		return h, nil
	}
	if p.kube == nil {
		return nil, errors.New("configuration: endpoints.metrics.authentication: token needs the API server: see kubernetes.enabled and kubernetes.kubeconfig, or choose none")
	}
	return endpoints.Authenticated(h, &endpoints.Reviews{Authentication: p.kube.Authentication(), Authorization: p.kube.Authorization()}, p.cfg.Log), nil
}

// liveness are the checks whose failure only a new agent mends.
func (p *program) liveness() []endpoints.Check {
	return []endpoints.Check{
		{Name: "vms", Look: p.checkVMs},
		{Name: "capabilities-watch", Look: func(context.Context) error {
			if p.progress.unwatched.Load() {
				return errors.New("the watch for changes of the node's capabilities has ended")
			}
			return nil
		}},
		{Name: "api", Look: func(ctx context.Context) error {
			if !p.progress.served.Load() {
				return nil // not yet
			}
			return p.checkAPI(ctx)
		}},
	}
}

// readiness are the checks of all that the agent is there for.
func (p *program) readiness() []endpoints.Check {
	return []endpoints.Check{
		{Name: "adoption", Look: func(context.Context) error {
			if !p.progress.adopted.Load() {
				return errors.New("the VMs that run are still being taken up")
			}
			return nil
		}},
		{Name: "api", Look: func(ctx context.Context) error {
			if !p.progress.served.Load() {
				return errors.New("the API is not served yet")
			}
			return p.checkAPI(ctx)
		}},
		{Name: "capabilities", Look: func(context.Context) error {
			if p.node.Keeper.Latest() == nil {
				return errors.New("what the node can do is still being asked")
			}
			return nil
		}},
		{Name: "device-plugins", Look: func(context.Context) error { return p.checkDevices() }},
		// VMs are run, and pods' VMs launched, without the cluster's programs.
		{Name: "certificate", Look: p.checkCertificate, Degraded: true},
	}
}

// checkVMs sees that nobody holds the VMs' locks.
func (p *program) checkVMs(context.Context) error {
	for _, m := range p.vms.All() {
		m.Snapshot()
	}
	return nil
}

// checkAPI asks something that costs nothing, over the API's own socket.
func (p *program) checkAPI(ctx context.Context) error {
	conn, err := grpc.NewClient("unix:"+p.cfg.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = nodev1.NewNodeServiceClient(conn).GetVM(ctx, &nodev1.GetVMRequest{})
	if err != nil && status.Code(err) != codes.NotFound {
		return fmt.Errorf("%s: %w", p.cfg.Socket, err)
	}
	return nil
}

// checkDevices sees that the kubelet knows of the devices that there are.
func (p *program) checkDevices() error {
	if !*p.cfg.DevicePlugins.Enabled {
		return nil
	}
	all, begun := p.offers.status()
	if !begun {
		return errors.New("no devices were offered to the kubelet yet")
	}
	var missing []string
	for _, s := range all {
		if s.Devices > 0 && !s.Registered {
			missing = append(missing, fmt.Sprintf("%s (%v)", s.Resource, s.Err))
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("not registered with the kubelet: %s", strings.Join(missing, ", "))
	}
	return nil
}

// renderLabels are the labels that the node should have now.
func (p *program) renderLabels(ctx context.Context) (endpoints.Labels, error) {
	doc, err := p.node.Keeper.Document(ctx)
	if err != nil {
		return endpoints.Labels{}, err
	}
	r, err := p.node.Labels.Of(doc)
	if err != nil {
		return endpoints.Labels{}, err
	}
	l := endpoints.Labels{Labels: r.GetLabels()}
	for _, u := range r.GetUnknown() {
		l.Unknown = append(l.Unknown, endpoints.UnknownFact{Fact: u.GetFact(), Reason: u.GetReason()})
	}
	return l, nil
}

// listed is a VM on the debug page. Anyone who is on the machine may see that: it has
// nothing of the specification, in which there may be secrets.
type listed struct {
	Namespace  string    `json:"namespace,omitempty"`
	Name       string    `json:"name"`
	ID         string    `json:"id"`
	State      string    `json:"state"`
	Message    string    `json:"message,omitempty"`
	Hypervisor string    `json:"hypervisor,omitempty"`
	VMM        string    `json:"vmm,omitempty"`
	ShimPID    int64     `json:"shimPid,omitempty"`
	VMMPID     int64     `json:"vmmPid,omitempty"`
	Cgroup     string    `json:"cgroup,omitempty"`
	StartedAt  time.Time `json:"startedAt,omitzero"`
	Monitor    bool      `json:"monitor"`
	Panics     uint64    `json:"panics,omitempty"`
}

// listing are all VMs, for the debug page.
func (p *program) listing() any {
	all := []listed{}
	for _, vm := range p.measured() {
		s := vm.Record.GetStatus()
		one := listed{
			Namespace: vm.Namespace, Name: vm.Name, ID: vm.Record.GetId(), State: lifecycle.Name(s.GetState()), Message: s.GetMessage(),
			Hypervisor: s.GetHypervisor(), VMM: strings.TrimSpace(s.GetVmm().GetName() + " " + s.GetVmm().GetVersion()),
			ShimPID: s.GetProcess().GetShimPid(), VMMPID: s.GetProcess().GetVmmPid(), Cgroup: s.GetProcess().GetCgroup(),
			Monitor: vm.Sampler != nil, Panics: vm.Panics,
		}
		if at := s.GetStartedAt(); at != nil {
			one.StartedAt = at.AsTime()
		}
		all = append(all, one)
	}
	return all
}
