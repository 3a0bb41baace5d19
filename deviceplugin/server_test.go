package deviceplugin_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/vmlet/vmlet/deviceplugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// connect returns a client of the one plugin in the folder.
func (n *node) connect() api.DevicePluginClient {
	n.t.Helper()
	sockets := n.sockets()
	if len(sockets) != 1 {
		n.t.Fatalf("%q", sockets)
	}
	conn, err := grpc.NewClient("passthrough:///plugin", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", sockets[0])
		}))
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { conn.Close() })
	return api.NewDevicePluginClient(conn)
}

// Any number of streams, of which some are never read: who tells of changes waits
// for none of them, and who reads sees the newest.
func TestStreams(t *testing.T) {
	k := newFakeKind(t, resource, devices(1000)...)
	n := newNode(t, k)
	n.start()
	n.counts(resource, 1000, 0)
	c := n.connect()
	var streams []grpc.ServerStreamingClient[api.ListAndWatchResponse]
	for range 8 {
		s, err := c.ListAndWatch(n.ctx(), &api.Empty{})
		if err != nil {
			t.Fatal(err)
		}
		if l, err := s.Recv(); err != nil || len(l.GetDevices()) != 1000 {
			t.Fatalf("%d devices, %v", len(l.GetDevices()), err)
		}
		streams = append(streams, s)
	}
	// Far more than what gRPC and the socket take without a reader.
	server := deviceplugin.ServerOf(n.manager, resource)
	for i := range 200 {
		all := devices(1000)
		all[i].Obstacle = "it is ill"
		server.Update(all)
	}
	server.Update(devices(7))
	n.counts(resource, 7, 0)
	for _, s := range streams[:4] {
		for {
			l, err := s.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if len(l.GetDevices()) == 7 {
				break
			}
		}
	}
}

// Without a kubelet, changes are taken all the same.
func TestNobodyListens(t *testing.T) {
	s := deviceplugin.NewServer(resource, t.TempDir(), "rw", slog.New(slog.DiscardHandler))
	for i := range 10_000 {
		s.Update(devices(i % 7))
	}
	s.Update(devices(5))
	if got := s.Status(); got.Devices != 5 || got.Healthy != 5 || got.Registered {
		t.Errorf("%+v", got)
	}
}

func TestHundredContainers(t *testing.T) {
	n := newNode(t, newFakeKind(t, resource, devices(1000)...))
	n.start()
	n.counts(resource, 1000, 0)
	var containers [][]string
	for i := range 100 {
		containers = append(containers, []string{fmt.Sprintf("d%d", 2*i), fmt.Sprintf("d%d", 2*i+1)})
	}
	// In one request, and each in its own.
	if _, err := n.kubelet.Allocate(n.ctx(), resource, containers...); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for _, ids := range containers {
		all.Go(func() {
			answer, err := n.kubelet.Allocate(n.ctx(), resource, ids)
			if err != nil {
				t.Error(err)
				return
			}
			if d := answer[0].GetDevices(); len(d) != 1 || d[0].GetHostPath() != "/dev/null" || !strings.HasPrefix(d[0].GetPermissions(), "rw") {
				t.Errorf("%v", d)
			}
		})
	}
	all.Wait()
	if got := n.manager.Status()[0].Allocations; got != 200 {
		t.Errorf("%d allocations are counted, want 200", got)
	}
}

// One answer for each container, with what it was asked for; nothing for nobody
// if one can't be answered.
func TestAllocate(t *testing.T) {
	give := func(id, obstacle string, nodes []string, variable, value string) deviceplugin.Device {
		return deviceplugin.Device{ID: id, Obstacle: obstacle, Grant: &deviceplugin.Grant{
			Nodes: nodes, Folders: []string{"/run/x"}, Variable: variable, Value: value, CDI: []string{"a.b/c=" + id}}}
	}
	n := newNode(t, newFakeKind(t, resource,
		give("b", "", []string{"/dev/vfio/vfio", "/dev/vfio/2"}, "V", "0000:02:00.0"),
		give("a", "", []string{"/dev/vfio/vfio", "/dev/vfio/1"}, "V", "0000:01:00.0"),
		give("ill", "its node is gone", nil, "", "")))
	n.start()
	n.counts(resource, 2, 1)
	answers, err := n.kubelet.Allocate(n.ctx(), resource, []string{"b", "a"}, []string{"a"})
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, d := range answers[0].GetDevices() {
		paths = append(paths, d.GetHostPath())
	}
	if want := []string{"/dev/vfio/vfio", "/dev/vfio/2", "/dev/vfio/1"}; !slices.Equal(paths, want) {
		t.Errorf("%q, want %q", paths, want)
	}
	if got := answers[0].GetEnvs(); len(got) != 1 || got["V"] != "0000:01:00.0,0000:02:00.0" {
		t.Errorf("%q", got)
	}
	if len(answers[0].GetMounts()) != 1 || !answers[0].GetMounts()[0].GetReadOnly() || len(answers[0].GetCdiDevices()) != 2 {
		t.Errorf("%v", answers[0])
	}
	if got := answers[1]; got.GetEnvs()["V"] != "0000:01:00.0" || len(got.GetDevices()) != 2 || len(got.GetCdiDevices()) != 1 {
		t.Errorf("%v", got)
	}
	for want, ids := range map[string][]string{
		`there is no device "c"`:         {"c"},
		"its node is gone":               {"ill"},
		"asked for twice":                {"a", "a"},
		"a container's request names no": {},
	} {
		_, err := n.kubelet.Allocate(n.ctx(), resource, []string{"a"}, ids)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), resource) {
			t.Errorf("%q: %v", ids, err)
		}
	}
	if _, err := n.connect().PreStartContainer(n.ctx(), &api.PreStartContainerRequest{DevicesIds: []string{"a"}}); err != nil {
		t.Error(err)
	}
}

func TestPreferred(t *testing.T) {
	n := newNode(t, newFakeKind(t, resource, devices(20)...))
	n.start()
	all := n.counts(resource, 20, 0).Healthy
	got, err := n.kubelet.Preferred(n.ctx(), resource, all, []string{"d11"}, 3)
	if err != nil || !slices.Equal(got, []string{"d11", "d0", "d1"}) {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := n.kubelet.Preferred(n.ctx(), resource, all[:2], nil, 3); status.Code(err) != codes.InvalidArgument {
		t.Errorf("%v", err)
	}
	// One more than there is now: what has gone since is the last choice.
	got, err = n.kubelet.Preferred(n.ctx(), resource, append([]string{"a-gone"}, all[:2]...), nil, 2)
	if err != nil || slices.Contains(got, "a-gone") {
		t.Errorf("%q, %v", got, err)
	}
}

func TestTopologyIsTold(t *testing.T) {
	d := devices(2)
	d[1].NUMANodes = []int{0, 1}
	n := newNode(t, newFakeKind(t, resource, d...))
	n.start()
	r := n.counts(resource, 2, 0)
	if !slices.Equal(r.Nodes["d1"], []int64{0, 1}) || r.Nodes["d0"] != nil {
		t.Errorf("%v", r.Nodes)
	}
}
