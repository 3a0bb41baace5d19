package kubelettest

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/vmlet/vmlet/test/suites"
)

const patience = 30 * time.Second

// plugin does what a test has it do, right or wrong.
type plugin struct {
	api.UnimplementedDevicePluginServer
	lists     chan *api.ListAndWatchResponse
	answer    *api.AllocateResponse
	preferred []string
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{GetPreferredAllocationAvailable: true}, nil
}

func (p *plugin) ListAndWatch(_ *api.Empty, s grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	for {
		select {
		case l, more := <-p.lists:
			if !more {
				return nil
			}
			if err := s.Send(l); err != nil {
				return err
			}
		case <-s.Context().Done():
			return s.Context().Err()
		}
	}
}

func (p *plugin) Allocate(context.Context, *api.AllocateRequest) (*api.AllocateResponse, error) {
	return p.answer, nil
}

func (p *plugin) GetPreferredAllocation(context.Context, *api.PreferredAllocationRequest) (*api.PreferredAllocationResponse, error) {
	return &api.PreferredAllocationResponse{ContainerResponses: []*api.ContainerPreferredAllocationResponse{{DeviceIDs: p.preferred}}}, nil
}

// fixture is a kubelet that runs, and its folder.
type fixture struct {
	*Kubelet
	t   *testing.T
	ctx context.Context
}

func newFixture(t *testing.T) fixture {
	t.Helper()
	f := fixture{Kubelet: New(t.TempDir()), t: t}
	if err := f.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Stop)
	ctx, cancel := suites.Patience(context.Background(), patience)
	t.Cleanup(cancel)
	f.ctx = ctx
	return f
}

func (f fixture) serve(socket string) *plugin {
	f.t.Helper()
	p := &plugin{lists: make(chan *api.ListAndWatchResponse, 8)}
	l, err := net.Listen("unix", filepath.Join(f.folder, socket))
	if err != nil {
		f.t.Fatal(err)
	}
	s := grpc.NewServer()
	api.RegisterDevicePluginServer(s, p)
	go s.Serve(l)
	f.t.Cleanup(s.Stop)
	return p
}

func (f fixture) register(r *api.RegisterRequest) error {
	f.t.Helper()
	conn, err := grpc.NewClient("passthrough:///kubelet", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(f.folder, socketName))
		}))
	if err != nil {
		f.t.Fatal(err)
	}
	defer conn.Close()
	if r.Options == nil {
		r.Options = &api.DevicePluginOptions{GetPreferredAllocationAvailable: true}
	}
	_, err = api.NewRegistrationClient(conn).Register(f.ctx, r)
	return err
}

func TestRegistrationsRefused(t *testing.T) {
	f := newFixture(t)
	f.patience = 50 * time.Millisecond
	f.serve("p.sock")
	for want, r := range map[string]*api.RegisterRequest{
		"the version":              {Version: "v1alpha1", Endpoint: "p.sock", ResourceName: "a.b/c"},
		`"c" is not an extended`:   {Version: api.Version, Endpoint: "p.sock", ResourceName: "c"},
		`"kubernetes.io/c" is not`: {Version: api.Version, Endpoint: "p.sock", ResourceName: "kubernetes.io/c"},
		`"requests.b/c" is not`:    {Version: api.Version, Endpoint: "p.sock", ResourceName: "requests.b/c"},
		`"a.b/c/d" is not`:         {Version: api.Version, Endpoint: "p.sock", ResourceName: "a.b/c/d"},
		`domain of the resource`:   {Version: api.Version, Endpoint: "p.sock", ResourceName: "A.b/c"},
		"is not a socket":          {Version: api.Version, Endpoint: "q.sock", ResourceName: "a.b/c"},
		"is not the name of":       {Version: api.Version, Endpoint: "../p.sock", ResourceName: "a.b/c"},
		"the options are others":   {Version: api.Version, Endpoint: "p.sock", ResourceName: "a.b/c", Options: &api.DevicePluginOptions{}},
	} {
		if err := f.register(r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", r, err, want)
		}
		if f.Resource(r.ResourceName).Registrations != 0 {
			t.Errorf("%v is registered", r)
		}
	}
}

func TestListsRefused(t *testing.T) {
	for want, devices := range map[string][]*api.Device{
		"listed twice": {{ID: "a", Health: api.Healthy}, {ID: "a", Health: api.Healthy}},
		"64 bytes":     {{ID: strings.Repeat("x", 64), Health: api.Healthy}},
		"0 bytes":      {{Health: api.Healthy}},
		"the health":   {{ID: "a", Health: "healthy"}},
		"NUMA node":    {{ID: "a", Health: api.Healthy, Topology: &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: -1}}}}},
	} {
		f := newFixture(t)
		p := f.serve("p.sock")
		if err := f.register(&api.RegisterRequest{Version: api.Version, Endpoint: "p.sock", ResourceName: "a.b/c"}); err != nil {
			t.Fatal(err)
		}
		p.lists <- &api.ListAndWatchResponse{Devices: devices}
		if _, err := f.Wait(f.ctx, "a.b/c", func(Resource) bool { return len(f.Faults()) > 0 }); err != nil {
			t.Fatal(err)
		}
		if got := f.Faults()[0]; !strings.Contains(got, want) || f.Resource("a.b/c").Registered {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestAnswersRefused(t *testing.T) {
	f := newFixture(t)
	p := f.serve("p.sock")
	if err := f.register(&api.RegisterRequest{Version: api.Version, Endpoint: "p.sock", ResourceName: "a.b/c"}); err != nil {
		t.Fatal(err)
	}
	one := func(c *api.ContainerAllocateResponse) *api.AllocateResponse {
		return &api.AllocateResponse{ContainerResponses: []*api.ContainerAllocateResponse{c}}
	}
	null := &api.DeviceSpec{HostPath: "/dev/null", ContainerPath: "/dev/null", Permissions: "rw"}
	for want, answer := range map[string]*api.AllocateResponse{
		"0 answers for 1":    {},
		"2 answers for 1":    {ContainerResponses: []*api.ContainerAllocateResponse{{}, {}}},
		"no absolute paths":  one(&api.ContainerAllocateResponse{Devices: []*api.DeviceSpec{{HostPath: "null", ContainerPath: "/dev/null", Permissions: "rw"}}}),
		"no permissions":     one(&api.ContainerAllocateResponse{Devices: []*api.DeviceSpec{{HostPath: "/dev/null", ContainerPath: "/dev/null"}}}),
		"listed twice":       one(&api.ContainerAllocateResponse{Devices: []*api.DeviceSpec{null, null}}),
		"of its own":         one(&api.ContainerAllocateResponse{Mounts: []*api.Mount{{HostPath: "/x"}}}),
		"name of a variable": one(&api.ContainerAllocateResponse{Envs: map[string]string{"a=b": ""}}),
		"a CDI device":       one(&api.ContainerAllocateResponse{CdiDevices: []*api.CDIDevice{{Name: "kvm"}}}),
	} {
		p.answer = answer
		if _, err := f.Allocate(f.ctx, "a.b/c", []string{"a"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	p.answer = one(&api.ContainerAllocateResponse{Devices: []*api.DeviceSpec{null}})
	if _, err := f.Allocate(f.ctx, "a.b/c", []string{"a"}); err != nil {
		t.Error(err)
	}
	for want, ids := range map[string][]string{
		"must be included":            {"b", "c"},
		"were asked for":              {"a"},
		"(1 different)":               {"a", "a"},
		"preferred and not available": {"z", "a"},
	} {
		p.preferred = ids
		_, err := f.Preferred(f.ctx, "a.b/c", []string{"a", "b", "c"}, []string{"a"}, 2)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	p.preferred = []string{"c", "a"}
	if _, err := f.Preferred(f.ctx, "a.b/c", []string{"a", "b", "c"}, []string{"a"}, 2); err != nil {
		t.Error(err)
	}
	if _, err := f.Allocate(f.ctx, "a.b/other", []string{"a"}); err == nil {
		t.Error("a resource that nobody offers is allocated")
	}
}

// The newest registration wins; and when an older one ends, it takes the newest
// with it.
func TestNewestWins(t *testing.T) {
	f := newFixture(t)
	const name = "a.b/c"
	list := func(id string) *api.ListAndWatchResponse {
		return &api.ListAndWatchResponse{Devices: []*api.Device{{ID: id, Health: api.Healthy}}}
	}
	old, fresh := f.serve("old.sock"), f.serve("new.sock")
	for i, p := range []*plugin{old, fresh} {
		id := []string{"old", "new"}[i]
		if err := f.register(&api.RegisterRequest{Version: api.Version, Endpoint: id + ".sock", ResourceName: name}); err != nil {
			t.Fatal(err)
		}
		p.lists <- list(id)
		if _, err := f.Wait(f.ctx, name, func(r Resource) bool { return r.Registered && slices.Equal(r.Healthy, []string{id}) }); err != nil {
			t.Fatal(err)
		}
	}
	close(old.lists)
	r, err := f.Wait(f.ctx, name, func(r Resource) bool { return !r.Registered })
	if err != nil || len(r.Healthy) != 0 || !slices.Equal(r.Unhealthy, []string{"new"}) {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestWipesAtStart(t *testing.T) {
	f := newFixture(t)
	f.Stop()
	f.Stop()
	for _, name := range []string{"x.sock", "y"} {
		if err := os.WriteFile(filepath.Join(f.folder, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Start(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(f.folder)
	if err != nil || len(entries) != 2 || entries[0].Name() != socketName || entries[1].Name() != Checkpoint {
		t.Errorf("%v, %v", entries, err)
	}
}
