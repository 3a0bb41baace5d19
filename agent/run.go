package agent

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/vmlet/vmlet/agent/api"
	"github.com/vmlet/vmlet/agent/config"
	"github.com/vmlet/vmlet/agent/host"
	"github.com/vmlet/vmlet/agent/kube"
	"github.com/vmlet/vmlet/agent/node"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/agent/podvm"
	"github.com/vmlet/vmlet/agent/store"
	"github.com/vmlet/vmlet/agent/vm"
	"github.com/vmlet/vmlet/internal/certificate"
	"github.com/vmlet/vmlet/podnet/helper"
	"github.com/vmlet/vmlet/spec"
	"google.golang.org/grpc"
)

// leavePatience is how long calls under way may take to end when the agent
// ends. They get the order to end, and undo what they were doing.
const leavePatience = 20 * time.Second

// Run serves the API until ctx ends; VMs go on after that. The error is nil if
// it was ctx that ended it, and wraps a *store.LockedError if another agent
// has the folders.
func Run(ctx context.Context, cfg config.Config) error {
	cfg, err := cfg.Complete()
	if err != nil {
		return err
	}
	if err := cfg.Validate(); err != nil {
		return err
	}
	// Without it nothing can ever run. A VMM may still be installed.
	if _, err := exec.LookPath(cfg.Shim); err != nil {
		return fmt.Errorf("shim: %w: it is installed beside vmlet-agent, or named in the configuration (shim:)", err)
	}
	st, err := store.Open(cfg.StateDir, cfg.RunDir)
	if err != nil {
		return err
	}
	defer st.Close()
	h, err := newHost(cfg)
	if err != nil {
		return err
	}
	n, err := node.New(cfg.OwnSources(), cfg.StateDir)
	if err != nil {
		return err
	}
	bootID, err := host.BootID("/proc")
	if err != nil {
		return err
	}
	err = serve(ctx, cfg, st, n, h, place.SystemShims{}, bootID)
	// A VM whose RAM is in the mount goes on with it.
	if errHost := h.Close(); errHost != nil {
		cfg.Log.Warn("failed to release the host's resources", "error", errHost)
	}
	return err
}

func newHost(cfg config.Config) (*host.Host, error) {
	pages := make(map[uint64]string)
	for i, h := range cfg.HugePages {
		size, err := spec.ParseQuantity(h.PageSize)
		if err != nil {
			return nil, fmt.Errorf("configuration: hugePages[%d].pageSize: %w", i, err)
		}
		pages[size] = h.Path
	}
	return host.New(host.Options{
		FirstUser: cfg.Users.First, Users: cfg.Users.Count,
		RAMDir: filepath.Join(cfg.RunDir, "ram"), RAMSize: cfg.RAM.Size, RAMHuge: cfg.RAM.Huge,
		HugePages:    pages,
		Instance:     instance(cfg.RunDir),
		CgroupParent: cfg.Cgroup.Parent, CgroupRequired: cfg.Cgroup.Required,
		PodsOnly: *cfg.Pods.Enabled,
		Log:      cfg.Log,
	})
}

// instance tells the agent of a run folder from others on the machine; the
// agent of the usual one needs no name.
func instance(runDir string) string {
	if runDir == config.DefaultRunDir {
		return ""
	}
	return fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(runDir)))
}

// program is all that an agent's process runs.
type program struct {
	cfg  config.Config
	node *node.Node
	host place.Host
	vms  *vm.Manager
	// kube is the client of the API server; nil without one.
	kube *kube.Client
	// pods are the VMs of pods; nil: the agent runs none.
	pods api.PodVMs
	// published writes what the node can do to Kubernetes.
	published *publication
	// certificate is what the API is served with on the network; nil if it isn't.
	certificate *certificate.Keeper

	offers   offers
	progress progress
	// background is what runs until the agent's own life ends.
	background sync.WaitGroup
}

// newProgram makes a program whose VMs' watches end with life.
func newProgram(life context.Context, cfg config.Config, st *store.Store, n *node.Node, h place.Host, s place.Shims, bootID string) *program {
	for _, note := range cfg.VirtualizationProfile.Notes() {
		cfg.Log.Warn("configuration: " + note.Key + ": " + note.Text)
	}
	client := kubeClient(cfg)
	return &program{
		cfg: cfg, node: n, host: h, kube: client, certificate: certificateKeeper(cfg, client),
		vms: vm.New(life, vm.Options{
			Own: &place.Resources{
				Store: st, Host: h, Shims: s, Node: n, StateDir: cfg.StateDir, RunDir: cfg.RunDir, Shim: cfg.Shim,
				HotplugFolders: cfg.HotplugFolders, PodsOnly: *cfg.Pods.Enabled, Log: cfg.Log,
			},
			Hypervisor: cfg.Hypervisor, BootID: bootID, Log: cfg.Log,
		}),
	}
}

// nodeName is the node's name in Kubernetes, or else the machine's.
func (p *program) nodeName() (string, error) {
	if p.kube != nil {
		return p.kube.Node(), nil
	}
	return os.Hostname()
}

// serve adopts what runs and serves the API until ctx ends.
func serve(ctx context.Context, cfg config.Config, st *store.Store, n *node.Node, h place.Host, s place.Shims, bootID string) error {
	// The agent's own life is longer than ctx: calls end before the watches.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	p := newProgram(life, cfg, st, n, h, s, bootID)
	defer p.vms.Wait()
	defer p.background.Wait()
	defer end()
	p.background.Go(func() {
		n.Watch(life, cfg.Log)
		p.progress.unwatched.Store(life.Err() == nil)
	})
	p.published = newPublication(cfg, n, p.kube)
	p.background.Go(func() { p.published.run(life, cfg) })
	if p.certificate != nil {
		p.background.Go(func() { p.certificate.Run(life) })
	}
	answer, err := p.openEndpoints(life)
	if err != nil {
		return err
	}
	p.background.Go(func() { answer(life) })
	p.background.Go(func() { offerDevices(life, cfg, cfg.Log, p.published.neighbour, &p.offers) })
	if err := p.vms.Adopter.Adopt(ctx); err != nil {
		return err
	}
	p.progress.adopted.Store(true)
	if *cfg.Pods.Enabled && p.kube != nil {
		pods, err := p.podVMs(life, fail)
		if err != nil {
			return err
		}
		p.pods = pods
		p.background.Go(func() { pods.Run(life) })
	}
	if err := p.serveAPI(ctx); err != nil {
		return err
	}
	if cause := context.Cause(ctx); errors.Is(cause, helper.ErrEnded) {
		return cause
	}
	return nil
}

// podVMs are those of the node's pods; fail ends the agent.
func (p *program) podVMs(life context.Context, fail func(error)) (*podvm.Runner, error) {
	o := podvm.Options{Manager: p.vms, Node: p.node, Client: p.kube, KubeletDir: p.cfg.DevicePlugins.KubeletDir, StateDir: p.cfg.StateDir, Report: p.published.source.takeStack, Log: p.cfg.Log}
	client, err := p.networkHelper(life, fail)
	if err != nil {
		return nil, err
	}
	if client != nil {
		o.Networks = client
	}
	return podvm.New(o)
}

// serveAPI serves the API until ctx ends.
func (p *program) serveAPI(ctx context.Context) error {
	cfg := p.cfg
	l, err := api.Listen(cfg.Socket, cfg.AllowedUsers)
	if err != nil {
		return err
	}
	defer os.Remove(cfg.Socket)
	server := p.newServer(api.PeerUsers(cfg.AllowedUsers))
	stop, err := p.serveNetwork()
	if err != nil {
		return errors.Join(err, l.Close())
	}
	defer stop()
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	p.progress.served.Store(true)
	cfg.Log.Info("serving", "socket", cfg.Socket, "state", cfg.StateDir, "run", cfg.RunDir, "vms", len(p.vms.All()))
	p.ready()
	select {
	case err := <-served:
		return fmt.Errorf("serving the API: %w", err)
	case <-ctx.Done():
	}
	cfg.Log.Info("leaving; VMs go on")
	leave(server)
	if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// leave ends the calls under way. Those that don't end at once are cancelled,
// and waited for: a start or a save takes itself back.
func leave(server *grpc.Server) {
	done := make(chan struct{})
	go func() {
		server.Stop() // returns when every handler has
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(leavePatience):
	}
}

// ready tells anyone who waits that the API is served.
func (p *program) ready() {
	if p.cfg.Ready != nil {
		p.cfg.Ready()
	}
	if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil {
		p.cfg.Log.Warn("failed to tell systemd that the agent is ready", "error", err)
	}
}
