package pods

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

const (
	// resourcesSocket is the kubelet's, in its root folder
	// (pkg/kubelet/apis/podresources/constants.go of Kubernetes).
	resourcesSocket = "pod-resources/kubelet.sock"
	// maxResources bounds its answer, in bytes, as the kubelet's own clients do.
	maxResources = 16 << 20
	// resourcesPatience is how long it may take: it answers from memory.
	resourcesPatience = 10 * time.Second
)

// Allocated asks the kubelet which device plugins' resources it has given to a
// container, by the resources' names.
func Allocated(ctx context.Context, kubeletDir, namespace, pod, container string) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, resourcesPatience)
	defer cancel()
	path := filepath.Join(kubeletDir, resourcesSocket)
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResources)))
	if err != nil {
		return nil, fmt.Errorf("the kubelet at %s: %w", path, err)
	}
	defer conn.Close()
	// Not Get, which kubelets before 1.34 don't have by themselves.
	list, err := podresources.NewPodResourcesListerClient(conn).List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, fmt.Errorf("asking the kubelet at %s what it has allocated: %w", path, err)
	}
	return allocated(list, namespace, pod, container), nil
}

func allocated(list *podresources.ListPodResourcesResponse, namespace, pod, container string) map[string]bool {
	out := make(map[string]bool)
	for _, p := range list.GetPodResources() {
		if p.GetNamespace() != namespace || p.GetName() != pod {
			continue
		}
		for _, c := range p.GetContainers() {
			if c.GetName() != container {
				continue
			}
			for _, d := range c.GetDevices() {
				if len(d.GetDeviceIds()) > 0 {
					out[d.GetResourceName()] = true
				}
			}
		}
	}
	return out
}
