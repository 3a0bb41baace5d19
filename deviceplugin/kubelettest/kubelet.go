// Package kubelettest is a kubelet, as far as a device plugin can tell, for tests.
// It does what the real one does, its faults included, and refuses what the real
// one refuses or would come to grief with; what it found wrong is remembered.
package kubelettest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Checkpoint is the file in the plugins' folder that the kubelet keeps.
const Checkpoint = "kubelet_internal_checkpoint"

// socketName is the kubelet's own socket.
const socketName = "kubelet.sock"

// Kubelet is one that can be started and stopped any number of times. Its methods
// may be called by several goroutines.
type Kubelet struct {
	folder string

	mu        sync.Mutex
	changed   chan struct{} // closed when something below changes
	run       *run          // nil: stopped
	resources map[string]*resource
	// registrations so far, of each resource.
	registrations map[string]int
	faults        []string
	slow          time.Duration
	// patience is how long a plugin's socket is looked for.
	patience time.Duration
}

// run is a kubelet between its start and its end.
type run struct {
	api.UnimplementedRegistrationServer
	k      *Kubelet
	ctx    context.Context
	cancel context.CancelFunc
	server *grpc.Server
	all    sync.WaitGroup
}

// resource is one that a plugin has registered.
type resource struct {
	endpoint string
	conn     *grpc.ClientConn
	options  *api.DevicePluginOptions
	// devices as the plugin told them last; nil: not yet.
	devices map[string]*api.Device
	order   []string
	// stopped: the plugin is lost, its devices count as unhealthy.
	stopped bool
}

// New returns a kubelet with this folder for plugins. It doesn't run yet.
func New(folder string) *Kubelet {
	return &Kubelet{folder: folder, changed: make(chan struct{}), resources: map[string]*resource{}, registrations: map[string]int{}, patience: 10 * time.Second}
}

// Slow has the kubelet take that long for each registration.
func (k *Kubelet) Slow(d time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.slow = d
}

// Start removes the sockets in the folder, knows nothing, and serves.
func (k *Kubelet) Start() error {
	if err := os.MkdirAll(k.folder, 0o750); err != nil {
		return err
	}
	if err := k.Wipe(); err != nil {
		return err
	}
	l, err := net.Listen("unix", filepath.Join(k.folder, socketName))
	if err != nil {
		return err
	}
	// The real one is often killed, and leaves its socket.
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	r := &run{k: k, server: grpc.NewServer(grpc.WaitForHandlers(true))}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	api.RegisterRegistrationServer(r.server, r)
	// It forgets before it listens: who registers from then on is not forgotten.
	k.change(func() {
		k.run = r
		k.resources = map[string]*resource{}
	})
	r.all.Go(func() { _ = r.server.Serve(l) })
	return os.WriteFile(filepath.Join(k.folder, Checkpoint), []byte("{}"), 0o600)
}

// Wipe removes everything in the folder but the checkpoint; the kubelet's own
// socket, too, though that is still served.
func (k *Kubelet) Wipe() error {
	entries, err := os.ReadDir(k.folder)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if e.Name() != Checkpoint {
			errs = append(errs, os.RemoveAll(filepath.Join(k.folder, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// WipePlugins removes the plugins' sockets and leaves the kubelet's.
func (k *Kubelet) WipePlugins() error {
	paths, err := filepath.Glob(filepath.Join(k.folder, "*.sock"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		if filepath.Base(path) == socketName {
			continue
		}
		// A plugin may have removed it meanwhile, to register again.
		if removeErr := os.Remove(path); !errors.Is(removeErr, fs.ErrNotExist) {
			err = errors.Join(err, removeErr)
		}
	}
	return err
}

// Stop ends it as a signal would: connections break, files stay.
func (k *Kubelet) Stop() {
	k.mu.Lock()
	r := k.run
	k.run = nil
	k.mu.Unlock()
	if r == nil {
		return
	}
	r.cancel()
	r.server.Stop()
	k.change(func() {
		for _, res := range k.resources {
			res.conn.Close()
			res.stopped = true
		}
	})
	r.all.Wait()
}

// change changes what is known, and tells those who wait.
func (k *Kubelet) change(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f()
	close(k.changed)
	k.changed = make(chan struct{})
}

func (k *Kubelet) fault(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	k.change(func() { k.faults = append(k.faults, err.Error()) })
	return err
}

// Faults are what plugins have done wrong so far.
func (k *Kubelet) Faults() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.faults)
}

// Register is called by plugins. As the real one does, it calls the plugin back
// before it answers.
func (r *run) Register(ctx context.Context, q *api.RegisterRequest) (*api.Empty, error) {
	k := r.k
	k.mu.Lock()
	slow := k.slow
	k.mu.Unlock()
	select {
	case <-time.After(slow):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if !slices.Contains(api.SupportedVersions[:], q.GetVersion()) {
		return nil, k.fault("the version %q is not one of %q", q.GetVersion(), api.SupportedVersions)
	}
	name := q.GetResourceName()
	if err := checkResource(name); err != nil {
		return nil, k.fault("%w", err)
	}
	res, err := r.connect(ctx, q)
	if err != nil {
		// Not a fault by itself: the folder may have been wiped just now.
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	k.change(func() {
		// The newest wins. The connection to the one before stays, as it does
		// with the real one, until that plugin ends it.
		k.resources[name] = res
		k.registrations[name]++
	})
	r.all.Go(func() { r.listen(name, res) })
	return &api.Empty{}, nil
}

func (r *run) connect(ctx context.Context, q *api.RegisterRequest) (*resource, error) {
	path := filepath.Join(r.k.folder, q.GetEndpoint())
	if q.GetEndpoint() != filepath.Base(q.GetEndpoint()) {
		return nil, r.k.fault("the endpoint %q is not the name of a socket", q.GetEndpoint())
	}
	asked := ctx
	ctx, cancel := context.WithTimeout(asked, r.k.patience)
	defer cancel()
	// As the real one, it doesn't take the absence of the socket for an answer.
	for st, err := os.Stat(path); err != nil || st.Mode()&os.ModeSocket == 0; st, err = os.Stat(path) {
		select {
		case <-ctx.Done():
			if asked.Err() != nil { // the plugin has thought better of it
				return nil, asked.Err()
			}
			return nil, r.k.fault("the endpoint %s is not a socket (%v)", path, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	conn, err := grpc.NewClient("passthrough:///plugin", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}))
	if err != nil {
		return nil, err
	}
	options, err := api.NewDevicePluginClient(conn).GetDevicePluginOptions(ctx, &api.Empty{})
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("asking for options: %w", err)
	}
	if q.GetOptions().GetGetPreferredAllocationAvailable() != options.GetGetPreferredAllocationAvailable() {
		conn.Close()
		return nil, r.k.fault("the options are others than those registered with")
	}
	return &resource{endpoint: q.GetEndpoint(), conn: conn, options: options}, nil
}

// listen takes a plugin's devices until it stops telling. Then anyone who is
// registered under the name is dropped, be it another plugin by now: so does the
// real one.
func (r *run) listen(name string, res *resource) {
	err := r.receive(name, res)
	res.conn.Close()
	r.k.change(func() {
		if r.ctx.Err() != nil {
			return
		}
		if now := r.k.resources[name]; now != nil && !now.stopped {
			now.stopped = true
			now.conn.Close()
		}
	})
	var bad *badList
	if errors.As(err, &bad) {
		_ = r.k.fault("%s: %w", name, err)
	}
}

func (r *run) receive(name string, res *resource) error {
	stream, err := api.NewDevicePluginClient(res.conn).ListAndWatch(r.ctx, &api.Empty{})
	if err != nil {
		return err
	}
	for {
		list, err := stream.Recv()
		if err != nil {
			return err
		}
		devices, order, err := checkList(list)
		if err != nil {
			return err
		}
		r.k.change(func() { res.devices, res.order = devices, order })
	}
}

// BreakStream ends the connection to a plugin, as an error in the kubelet would.
func (k *Kubelet) BreakStream(name string) {
	k.change(func() {
		if res := k.resources[name]; res != nil {
			res.conn.Close()
		}
	})
}

// Resource is what the kubelet knows of a resource.
type Resource struct {
	// Registered: a plugin is there and has told its devices.
	Registered bool
	// Registrations so far, over all starts.
	Registrations int
	// Healthy and Unhealthy are ids, in the order they arrived.
	Healthy, Unhealthy []string
	// Nodes are NUMA nodes, by id.
	Nodes map[string][]int64
}

// Resource returns what is known of a resource. A plugin that is lost has
// unhealthy devices only.
func (k *Kubelet) Resource(name string) Resource {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.resource(name)
}

func (k *Kubelet) resource(name string) Resource {
	r := Resource{Registrations: k.registrations[name], Nodes: map[string][]int64{}}
	res := k.resources[name]
	if res == nil {
		return r
	}
	r.Registered = !res.stopped && res.devices != nil
	for _, id := range res.order {
		d := res.devices[id]
		if d.GetHealth() == api.Healthy && !res.stopped {
			r.Healthy = append(r.Healthy, id)
		} else {
			r.Unhealthy = append(r.Unhealthy, id)
		}
		for _, n := range d.GetTopology().GetNodes() {
			r.Nodes[id] = append(r.Nodes[id], n.GetID())
		}
	}
	return r
}

// Wait waits until what is known of a resource is as wanted.
func (k *Kubelet) Wait(ctx context.Context, name string, wanted func(Resource) bool) (Resource, error) {
	for {
		k.mu.Lock()
		r, changed := k.resource(name), k.changed
		faults := strings.Join(k.faults, "; ")
		k.mu.Unlock()
		if wanted(r) {
			return r, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return r, fmt.Errorf("%s: registered %v, %d registrations, %d healthy and %d unhealthy devices, faults: %q: %w", name,
				r.Registered, r.Registrations, len(r.Healthy), len(r.Unhealthy), faults, ctx.Err())
		}
	}
}
