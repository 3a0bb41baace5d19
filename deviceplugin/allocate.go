package deviceplugin

import (
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// allocator makes the kubelet's answers from what the devices grant.
type allocator struct {
	resource string
	// permissions that a container gets for a device node in its devices cgroup.
	permissions string
}

// allocate answers each container's request, in their order. It is all or
// nothing: one unknown or unusable device refuses them all.
func (a allocator) allocate(now *snapshot, requests []*api.ContainerAllocateRequest) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{ContainerResponses: make([]*api.ContainerAllocateResponse, 0, len(requests))}
	for _, r := range requests {
		grants, err := a.grants(now, r.GetDevicesIds())
		if err != nil {
			return nil, err
		}
		answer.ContainerResponses = append(answer.ContainerResponses, a.container(grants))
	}
	return answer, nil
}

// grants are those of the devices, each once.
func (a allocator) grants(now *snapshot, ids []string) ([]*Grant, error) {
	if len(ids) == 0 {
		return nil, status.Errorf(codes.InvalidArgument, "%s: a container's request names no device", a.resource)
	}
	var grants []*Grant
	asked := make(map[string]bool, len(ids))
	for _, id := range ids {
		d := now.byID[id]
		switch {
		case d == nil:
			return nil, status.Errorf(codes.NotFound, "%s: there is no device %.80q (any more)", a.resource, id)
		case d.Obstacle != "":
			return nil, status.Errorf(codes.FailedPrecondition, "%s: the device %s can't be used: %s", a.resource, id, d.Obstacle)
		case asked[id]:
			return nil, status.Errorf(codes.InvalidArgument, "%s: the device %s is asked for twice for one container", a.resource, id)
		}
		asked[id] = true
		if !slices.Contains(grants, d.Grant) {
			grants = append(grants, d.Grant)
		}
	}
	return grants, nil
}

// container puts grants together: what several have in common is given once.
func (a allocator) container(grants []*Grant) *api.ContainerAllocateResponse {
	c := &api.ContainerAllocateResponse{}
	given := make(map[string]bool)
	first := func(kind, name string) bool {
		key := kind + name
		known := given[key]
		given[key] = true
		return !known
	}
	values := make(map[string][]string)
	for _, g := range grants {
		for _, path := range g.Nodes {
			if first("node ", path) {
				c.Devices = append(c.Devices, &api.DeviceSpec{HostPath: path, ContainerPath: path, Permissions: a.permissions})
			}
		}
		for _, path := range g.Folders {
			if first("folder ", path) {
				c.Mounts = append(c.Mounts, &api.Mount{HostPath: path, ContainerPath: path, ReadOnly: true})
			}
		}
		for _, name := range g.CDI {
			if first("cdi ", name) {
				c.CdiDevices = append(c.CdiDevices, &api.CDIDevice{Name: name})
			}
		}
		if g.Variable != "" {
			values[g.Variable] = append(values[g.Variable], g.Value)
		}
	}
	for variable, value := range values {
		if c.Envs == nil {
			c.Envs = make(map[string]string, len(values))
		}
		slices.Sort(value)
		c.Envs[variable] = strings.Join(value, ",")
	}
	return c
}
