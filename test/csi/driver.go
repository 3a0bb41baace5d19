// Package csi is a CSI driver for tests: volumes of both modes that can be expanded, cloned
// and snapshotted, each a file behind a loop device. It needs nothing but root,
// cp, blkid and e2fsprogs, and isn't meant to be fast or safe from power cuts.
//
// Nodes of one machine can share a folder of volumes. A driver on each then has them attached
// before they are used, and refuses to attach one to two nodes at once, unless it is a device
// that may have many writers. All of a volume's nodes have the same loop device.
//
// Start reading at [Run]. What is kept is in store.go, what is asked in controller.go, attach.go
// and node.go.
package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Name is the driver's, as StorageClasses have it.
const Name = "loop.vmlet.test"

// topologyKey is the label of a node's name: a volume is on its node alone, if it isn't attached.
const topologyKey = "topology." + Name + "/node"

// Options are what a driver is told.
type Options struct {
	// Root is the folder of volumes and snapshots.
	Root string
	// Kubelet is the kubelet's folder, usually /var/lib/kubelet.
	Kubelet string
	// Node is the node's name.
	Node string
	// Attach says that volumes are attached to nodes, which share Root.
	Attach bool
}

// Socket is where the driver of a kubelet's folder answers.
func Socket(kubelet string) string { return filepath.Join(kubelet, "plugins", Name, "csi.sock") }

// Run serves the driver and registers it with the kubelet until ctx ends.
func Run(ctx context.Context, o Options) error {
	d, err := newDriver(o)
	if err != nil {
		return err
	}
	socket := Socket(o.Kubelet)
	plugin, registrar := grpc.NewServer(), grpc.NewServer()
	d.register(plugin)
	registration.RegisterRegistrationServer(registrar, registrant{endpoint: socket})
	failed := make(chan error, 2)
	for path, server := range map[string]*grpc.Server{
		socket: plugin, filepath.Join(o.Kubelet, "plugins_registry", Name+"-reg.sock"): registrar,
	} {
		listener, err := listen(path)
		if err != nil {
			return err
		}
		defer server.Stop()
		go func() { failed <- server.Serve(listener) }()
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// listen also takes the place of a socket that a killed driver has left.
func listen(socket string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
		return nil, err
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return net.Listen("unix", socket)
}

// driver answers one call at a time.
type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer
	store  store
	node   string
	attach bool

	mu sync.Mutex
	// held are loop devices of staged volumes: they are detached once nobody has them open.
	held map[string]*os.File
	// published is where pods have volumes: the last place of each.
	published map[string]string
}

func newDriver(o Options) (*driver, error) {
	s, err := openStore(o.Root)
	if err == nil && o.Attach {
		err = s.addNode(o.Node)
	}
	return &driver{store: s, node: o.Node, attach: o.Attach, held: make(map[string]*os.File), published: make(map[string]string)}, err
}

func (d *driver) register(s *grpc.Server) {
	csi.RegisterIdentityServer(s, d)
	csi.RegisterControllerServer(s, d)
	csi.RegisterNodeServer(s, d)
}

func (d *driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: Name, VendorVersion: "test"}, nil
}

func (d *driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	service := func(t csi.PluginCapability_Service_Type) *csi.PluginCapability {
		return &csi.PluginCapability{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: t}}}
	}
	all := []*csi.PluginCapability{
		service(csi.PluginCapability_Service_CONTROLLER_SERVICE),
		{Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: &csi.PluginCapability_VolumeExpansion{
			Type: csi.PluginCapability_VolumeExpansion_ONLINE,
		}}},
	}
	if !d.attach {
		all = append(all, service(csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS))
	}
	return &csi.GetPluginCapabilitiesResponse{Capabilities: all}, nil
}

func (d *driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

// registrant tells the kubelet, which finds its socket, where the driver is.
type registrant struct {
	registration.UnimplementedRegistrationServer
	endpoint string
}

func (r registrant) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: Name, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (r registrant) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !s.GetPluginRegistered() {
		fmt.Fprintln(os.Stderr, "the kubelet refuses the driver:", s.GetError())
	}
	return &registration.RegistrationStatusResponse{}, nil
}
