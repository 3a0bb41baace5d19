package kubelettest

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

var (
	label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	name  = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)
	// variable is what the kubelet takes for the name of one of a container.
	variable = regexp.MustCompile(`^[-._a-zA-Z][-._a-zA-Z0-9]*$`)
	cdi      = regexp.MustCompile(`^[^/=]+/[^/=]+=[^/=]+$`)
)

// checkResource: an extended resource's name is qualified, not Kubernetes' own,
// and still a name with "requests." before it, as quotas have it.
func checkResource(resource string) error {
	domain, rest, found := strings.Cut(resource, "/")
	switch {
	case !found || strings.Contains(resource, "kubernetes.io/") || strings.HasPrefix(resource, "requests."):
		return fmt.Errorf("the resource %q is not an extended one", resource)
	case len("requests."+domain) > 253 || len(rest) > 63 || !name.MatchString(rest):
		return fmt.Errorf("the resource %q is not a qualified name", resource)
	}
	for part := range strings.SplitSeq(domain, ".") {
		if !label.MatchString(part) {
			return fmt.Errorf("the domain of the resource %q is none", resource)
		}
	}
	return nil
}

// badList is a list of devices that the real kubelet would take and come to
// grief with.
type badList struct{ text string }

func (b *badList) Error() string { return b.text }

func checkList(list *api.ListAndWatchResponse) (map[string]*api.Device, []string, error) {
	devices := make(map[string]*api.Device, len(list.GetDevices()))
	var order []string
	for _, d := range list.GetDevices() {
		id := d.GetID()
		switch {
		case id == "" || len(id) > 63:
			return nil, nil, &badList{fmt.Sprintf("the id %q has %d bytes", id, len(id))}
		case devices[id] != nil:
			return nil, nil, &badList{fmt.Sprintf("the id %q is listed twice", id)}
		case d.GetHealth() != api.Healthy && d.GetHealth() != api.Unhealthy:
			return nil, nil, &badList{fmt.Sprintf("%q: the health %q is none", id, d.GetHealth())}
		case d.Topology != nil && len(d.Topology.GetNodes()) == 0:
			return nil, nil, &badList{fmt.Sprintf("%q: a topology without nodes", id)}
		}
		for _, n := range d.GetTopology().GetNodes() {
			if n.GetID() < 0 {
				return nil, nil, &badList{fmt.Sprintf("%q: NUMA node %d", id, n.GetID())}
			}
		}
		devices[id] = d
		order = append(order, id)
	}
	return devices, order, nil
}

func (k *Kubelet) client(name string) (api.DevicePluginClient, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	res := k.resources[name]
	if res == nil || res.stopped {
		return nil, fmt.Errorf("nobody offers %s", name)
	}
	return api.NewDevicePluginClient(res.conn), nil
}

// Allocate asks a plugin for devices for containers, a list of ids each. Answers
// that a container couldn't be started with are faults.
func (k *Kubelet) Allocate(ctx context.Context, name string, containers ...[]string) ([]*api.ContainerAllocateResponse, error) {
	c, err := k.client(name)
	if err != nil {
		return nil, err
	}
	q := &api.AllocateRequest{}
	for _, ids := range containers {
		q.ContainerRequests = append(q.ContainerRequests, &api.ContainerAllocateRequest{DevicesIds: ids})
	}
	answer, err := c.Allocate(ctx, q)
	if err != nil {
		return nil, err
	}
	if got := len(answer.GetContainerResponses()); got != len(containers) {
		return nil, k.fault("%s: %d answers for %d containers", name, got, len(containers))
	}
	for _, c := range answer.GetContainerResponses() {
		if err := checkContainer(c); err != nil {
			return nil, k.fault("%s: %w", name, err)
		}
	}
	return answer.GetContainerResponses(), nil
}

func checkContainer(c *api.ContainerAllocateResponse) error {
	known := map[string]bool{}
	for _, d := range c.GetDevices() {
		switch {
		case !filepath.IsAbs(d.GetHostPath()) || !filepath.IsAbs(d.GetContainerPath()):
			return fmt.Errorf("the device %v has no absolute paths", d)
		case d.GetPermissions() == "" || strings.Trim(d.GetPermissions(), "rwm") != "":
			return fmt.Errorf("the device %v has no permissions", d)
		case known[d.GetContainerPath()]:
			return fmt.Errorf("the device %v is listed twice", d)
		}
		known[d.GetContainerPath()] = true
	}
	for _, m := range c.GetMounts() {
		if !filepath.IsAbs(m.GetHostPath()) || !filepath.IsAbs(m.GetContainerPath()) || known[m.GetContainerPath()] {
			return fmt.Errorf("the mount %v has no absolute paths of its own", m)
		}
		known[m.GetContainerPath()] = true
	}
	for key := range c.GetEnvs() {
		if !variable.MatchString(key) {
			return fmt.Errorf("%q is not the name of a variable", key)
		}
	}
	for _, d := range c.GetCdiDevices() {
		if !cdi.MatchString(d.GetName()) || known[d.GetName()] {
			return fmt.Errorf("%q is not the name of a CDI device, or there twice", d.GetName())
		}
		known[d.GetName()] = true
	}
	return nil
}

// Preferred asks a plugin which of the available devices it would rather give.
// Answers that the kubelet can't follow are faults.
func (k *Kubelet) Preferred(ctx context.Context, name string, available, must []string, size int) ([]string, error) {
	c, err := k.client(name)
	if err != nil {
		return nil, err
	}
	answer, err := c.GetPreferredAllocation(ctx, &api.PreferredAllocationRequest{ContainerRequests: []*api.ContainerPreferredAllocationRequest{
		{AvailableDeviceIDs: available, MustIncludeDeviceIDs: must, AllocationSize: int32(size)},
	}})
	if err != nil {
		return nil, err
	}
	if len(answer.GetContainerResponses()) != 1 {
		return nil, k.fault("%s: %d preferences for one container", name, len(answer.GetContainerResponses()))
	}
	ids := answer.GetContainerResponses()[0].GetDeviceIDs()
	sorted := slices.Compact(slices.Sorted(slices.Values(ids)))
	if len(ids) != size || len(sorted) != size {
		return nil, k.fault("%s: %d devices are preferred (%d different), %d were asked for", name, len(ids), len(sorted), size)
	}
	for _, id := range must {
		if !slices.Contains(ids, id) {
			return nil, k.fault("%s: %s must be included and isn't", name, id)
		}
	}
	for _, id := range ids {
		if !slices.Contains(available, id) {
			return nil, k.fault("%s: %s is preferred and not available", name, id)
		}
	}
	return ids, nil
}
