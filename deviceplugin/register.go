package deviceplugin

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// registerPatience is how long the kubelet may take. While it is asked to
// register us it connects to us, for which it takes up to 10 seconds.
const registerPatience = 15 * time.Second

// register tells the kubelet on its socket that a resource is offered on another
// one, which must be served already.
func register(ctx context.Context, kubelet, resource, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, registerPatience)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///kubelet",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", kubelet)
		}))
	if err != nil {
		return fmt.Errorf("%s: %w", kubelet, err)
	}
	defer conn.Close()
	_, err = api.NewRegistrationClient(conn).Register(ctx, &api.RegisterRequest{
		Version: api.Version, Endpoint: socket, ResourceName: resource, Options: options(),
	})
	if err != nil {
		return fmt.Errorf("registering with the kubelet on %s: %w", kubelet, err)
	}
	return nil
}
