package pods

import (
	"context"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/vmlet/vmlet/test/suites"
)

func resourcesOf(namespace, pod, container string, devices ...string) *podresources.PodResources {
	c := &podresources.ContainerResources{Name: container}
	for _, d := range devices {
		name, id, _ := strings.Cut(d, "=")
		devices := &podresources.ContainerDevices{ResourceName: name}
		if id != "" {
			devices.DeviceIds = []string{id}
		}
		c.Devices = append(c.Devices, devices)
	}
	return &podresources.PodResources{Namespace: namespace, Name: pod, Containers: []*podresources.ContainerResources{c}}
}

func TestAllocatedOf(t *testing.T) {
	const kvm, tun = "devices.kubevirt.io/kvm", "devices.kubevirt.io/tun"
	list := &podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{
		nil,
		resourcesOf("default", "web", "vm", kvm+"=kvm1", tun),
		resourcesOf("default", "web", "sidecar", tun+"=tun1"),
		resourcesOf("default", "db", "vm", tun+"=tun2"),
		resourcesOf("other", "web", "vm", tun+"=tun3"),
		{Namespace: "default", Name: "web", Containers: []*podresources.ContainerResources{nil, {Name: "vm", Devices: []*podresources.ContainerDevices{nil}}}},
	}}
	for _, test := range []struct {
		namespace, pod, container string
		want                      map[string]bool
	}{
		{"default", "web", "vm", map[string]bool{kvm: true}},
		{"default", "web", "sidecar", map[string]bool{tun: true}},
		{"default", "db", "vm", map[string]bool{tun: true}},
		{"default", "db", "sidecar", map[string]bool{}},
		{"other", "db", "vm", map[string]bool{}},
		{"", "web", "vm", map[string]bool{}},
	} {
		if got := allocated(list, test.namespace, test.pod, test.container); !maps.Equal(got, test.want) {
			t.Errorf("%s/%s %s: %v, want %v", test.namespace, test.pod, test.container, got, test.want)
		}
	}
	if got := allocated(nil, "default", "web", "vm"); len(got) != 0 {
		t.Errorf("of no answer: %v", got)
	}
}

// lister is a kubelet that says what it is told to.
type lister struct {
	podresources.UnimplementedPodResourcesListerServer
	list func(context.Context) (*podresources.ListPodResourcesResponse, error)
}

func (l lister) List(ctx context.Context, _ *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	return l.list(ctx)
}

// listen serves a kubelet's socket and returns the kubelet's folder.
func listen(t *testing.T, list func(context.Context) (*podresources.ListPodResourcesResponse, error)) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, resourcesSocket)
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.MaxSendMsgSize(4 * maxResources))
	podresources.RegisterPodResourcesListerServer(server, lister{list: list})
	go server.Serve(l)
	t.Cleanup(server.Stop)
	return dir
}

func TestAllocated(t *testing.T) {
	answer := func(pods ...*podresources.PodResources) func(context.Context) (*podresources.ListPodResourcesResponse, error) {
		return func(context.Context) (*podresources.ListPodResourcesResponse, error) {
			return &podresources.ListPodResourcesResponse{PodResources: pods}, nil
		}
	}
	ctx, cancel := suites.Wait(t.Context(), t, patience)
	defer cancel()
	got, err := Allocated(ctx, listen(t, answer(resourcesOf("default", "web", "vm", "kvm=1"))), "default", "web", "vm")
	if err != nil || !got["kvm"] {
		t.Errorf("%v, %v", got, err)
	}
	for _, test := range []struct {
		name string
		list func(context.Context) (*podresources.ListPodResourcesResponse, error)
		want string
	}{
		{"an error", func(context.Context) (*podresources.ListPodResourcesResponse, error) {
			return nil, status.Error(codes.Internal, "something is amiss")
		}, "something is amiss"},
		{"too much", answer(resourcesOf("default", "web", "vm", "kvm="+strings.Repeat("x", maxResources))), "larger than max"},
		{"rate limited", func(context.Context) (*podresources.ListPodResourcesResponse, error) {
			return nil, status.Error(codes.ResourceExhausted, "rejected by rate limit")
		}, "rejected by rate limit"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := listen(t, test.list)
			got, err := Allocated(ctx, dir, "default", "web", "vm")
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), dir) {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
	if got, err := Allocated(ctx, t.TempDir(), "default", "web", "vm"); err == nil {
		t.Errorf("without a kubelet: %v", got)
	}
}

// TestAllocatedGivesUp: a kubelet that never answers is not waited for beyond the
// caller's patience.
func TestAllocatedGivesUp(t *testing.T) {
	asked := make(chan struct{}, 1)
	dir := listen(t, func(ctx context.Context) (*podresources.ListPodResourcesResponse, error) {
		asked <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	if got, err := Allocated(ctx, dir, "default", "web", "vm"); err == nil {
		t.Errorf("%v", got)
	}
}
