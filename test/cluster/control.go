package cluster

import (
	"context"
	"time"

	"github.com/vmlet/vmlet/test/suites"
)

// StopComponent ends a component, decently if it lets itself be. The cluster is
// not broken by that. Pods are not touched.
func (c *Cluster) StopComponent(name string) error {
	if name == APIServer {
		// All that it does after this is wait for those who watch something, for a
		// minute.
		return c.node.stop(name, time.Second)
	}
	return c.node.stop(name, grace)
}

// StartComponent starts one that was stopped, and returns when it answers: the
// API server, the kubelet and containerd do so, others are not waited for.
func (c *Cluster) StartComponent(ctx context.Context, name string) error {
	if err := c.startComponents(name); err != nil {
		return err
	}
	ctx, cancel := suites.Patience(ctx, patience)
	defer cancel()
	return c.answering(ctx, name)
}

// answering waits until a component that can be asked answers.
func (c *Cluster) answering(ctx context.Context, name string) error {
	switch name {
	case APIServer:
		return c.answers(ctx, name, c.programs["kubectl"], c.kubectlArgs("get", "--raw=/readyz")...)
	case Kubelet:
		return c.answers(ctx, name, c.programs["kubectl"], c.kubectlArgs("get", "--raw=/api/v1/nodes/"+NodeName+"/proxy/healthz")...)
	case Containerd:
		return c.answers(ctx, name, c.programs["ctr"], "--address", c.containerd(), "version")
	}
	return nil
}

// RestartKubelet ends the kubelet, starts it again and returns when it answers.
func (c *Cluster) RestartKubelet(ctx context.Context) error { return c.restart(ctx, Kubelet) }

// RestartAPIServer does the same with the API server: whoever watches something
// has to begin again.
func (c *Cluster) RestartAPIServer(ctx context.Context) error { return c.restart(ctx, APIServer) }

func (c *Cluster) restart(ctx context.Context, name string) error {
	if err := c.StopComponent(name); err != nil {
		return err
	}
	return c.StartComponent(ctx, name)
}

// ConfigureKubelet restarts the kubelet with these fields of its configuration
// other than usual, in place of [Options.Kubelet]. The policies of the CPU and
// memory managers can't be changed this way: the kubelet has written down what
// they have given away, and refuses.
func (c *Cluster) ConfigureKubelet(ctx context.Context, fields map[string]any) error {
	if err := c.StopComponent(Kubelet); err != nil {
		return err
	}
	if err := c.configureKubelet(fields); err != nil {
		return err
	}
	return c.StartComponent(ctx, Kubelet)
}
