package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/vmlet/vmlet/test/suites"
)

// StopComponent ends a component, decently if it lets itself be. The cluster is
// not broken by that. Pods are not touched.
func (n *Node) StopComponent(name string) error {
	init, err := n.running()
	if err != nil {
		return err
	}
	if name == APIServer {
		// All that it does after this is wait for those who watch something, for a
		// minute.
		return init.stop(name, time.Second)
	}
	return init.stop(name, grace)
}

// KillComponent ends a component without warning, and is StopComponent otherwise.
func (n *Node) KillComponent(name string) error {
	init, err := n.running()
	if err != nil {
		return err
	}
	return init.stop(name, 0)
}

// StartComponent starts one that was stopped, and returns when it answers: the
// API server, the kubelet and containerd do so, others are not waited for.
func (n *Node) StartComponent(ctx context.Context, name string) error {
	if err := n.startComponents(name); err != nil {
		return err
	}
	ctx, cancel := suites.Patience(ctx, patience)
	defer cancel()
	return n.answering(ctx, name)
}

// answering waits until a component that can be asked answers.
func (n *Node) answering(ctx context.Context, name string) error {
	c := n.cluster
	switch name {
	case APIServer:
		return n.answers(ctx, name, c.programs["kubectl"], c.kubectlArgs("get", "--raw=/readyz")...)
	case Kubelet:
		return n.answers(ctx, name, c.programs["kubectl"], c.kubectlArgs("get", "--raw=/api/v1/nodes/"+n.Name()+"/proxy/healthz")...)
	case Containerd:
		return n.servesKubelet(ctx)
	}
	return nil
}

// servesKubelet waits until containerd answers, with what the kubelet asks of it. It gives that part
// (CRI) up for good when it can't watch CNI's folder: all of a machine's tests share the inotify
// instances of root (fs.inotify.max_user_instances, 128 by default). Then it is started again.
func (n *Node) servesKubelet(ctx context.Context) error {
	c := n.cluster
	ctr := func(args ...string) []string { return append([]string{"--address", n.containerd()}, args...) }
	for {
		if err := n.answers(ctx, Containerd, c.programs["ctr"], ctr("version")...); err != nil {
			return err
		}
		plugins, err := c.run(ctx, nil, c.programs["ctr"], ctr("plugins", "list")...)
		if err != nil {
			return err
		}
		if !lacksCRI(plugins) {
			return n.answersCRI(ctx)
		}
		c.logf("containerd has come up without CRI, as on a machine whose inotify instances are used up: starting it again")
		if err := n.StopComponent(Containerd); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return n.blame(Containerd, errors.New("containerd comes up without CRI, again and again"))
		case <-time.After(time.Second):
		}
		if err := n.startComponents(Containerd); err != nil {
			return err
		}
	}
}

// answersCRI waits until containerd has taken up the containers that it had: the kubelet, which is told until
// then that the server is not initialized, ends.
func (n *Node) answersCRI(ctx context.Context) error {
	conn, err := grpc.NewClient("unix:"+n.containerd(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	for {
		// Both messages may be without any field.
		err := conn.Invoke(ctx, "/runtime.v1.RuntimeService/Version", &emptypb.Empty{}, &emptypb.Empty{})
		if err == nil {
			return nil
		}
		select {
		case <-n.cluster.broken.Done():
			return context.Cause(n.cluster.broken)
		case <-ctx.Done():
			return n.blame(Containerd, fmt.Errorf("containerd does not answer as the kubelet asks: %w", err))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// lacksCRI reads ctr's list of plugins: type, name, platforms and state of one a line.
func lacksCRI(plugins string) bool {
	for line := range strings.Lines(plugins) {
		if f := strings.Fields(line); len(f) > 2 && f[1] == "cri" && f[len(f)-1] == "error" {
			return true
		}
	}
	return false
}

// RestartKubelet ends the kubelet, starts it again and returns when it answers.
func (n *Node) RestartKubelet(ctx context.Context) error { return n.restart(ctx, Kubelet) }

// RestartAPIServer does the same with the API server: whoever watches something
// has to begin again.
func (n *Node) RestartAPIServer(ctx context.Context) error { return n.restart(ctx, APIServer) }

func (n *Node) restart(ctx context.Context, name string) error {
	if err := n.StopComponent(name); err != nil {
		return err
	}
	return n.StartComponent(ctx, name)
}

// ConfigureKubelet restarts the kubelet with these fields of its configuration
// other than usual, in place of [Options.Kubelet]. The policies of the CPU and
// memory managers can't be changed this way: the kubelet has written down what
// they have given away, and refuses.
func (n *Node) ConfigureKubelet(ctx context.Context, fields map[string]any) error {
	if err := n.StopComponent(Kubelet); err != nil {
		return err
	}
	if err := n.configureKubelet(fields); err != nil {
		return err
	}
	return n.StartComponent(ctx, Kubelet)
}
