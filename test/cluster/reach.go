package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// Pod names a pod, and a container of it; without a Container it is the first.
type Pod struct{ Namespace, Name, Container string }

// Exec runs a program in a container and returns what it printed. The error has
// what it complained of.
func (c *Cluster) Exec(ctx context.Context, p Pod, args ...string) (string, error) {
	flags := []string{"exec", p.Name, "--namespace=" + p.Namespace}
	if p.Container != "" {
		flags = append(flags, "--container="+p.Container)
	}
	return c.Kubectl(ctx, append(append(flags, "--"), args...)...)
}

// Address is where a port of a pod's can be reached from this machine.
func (c *Cluster) Address(ctx context.Context, p Pod, port int) (string, error) {
	ip, err := c.Kubectl(ctx, "get", "pod", p.Name, "--namespace="+p.Namespace, "-o", "jsonpath={.status.podIP}")
	if err == nil && ip == "" {
		err = fmt.Errorf("the pod %s has no address yet", p.Name)
	}
	return net.JoinHostPort(ip, strconv.Itoa(port)), err
}

// Forward makes a port of a pod's loopback reachable, by the API server and the
// kubelet, and returns the address; stop ends that. The forwarder runs on the
// node, and so doesn't outlive it.
func (c *Cluster) Forward(ctx context.Context, p Pod, port int) (address string, stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	kubectl := append([]string{c.programs["kubectl"]}, c.kubectlArgs("port-forward", "pod/"+p.Name, ":"+strconv.Itoa(port),
		"--namespace="+p.Namespace, "--address="+c.NodeAddress())...)
	cmd := exec.CommandContext(ctx, c.programs["nsenter"], c.enter(kubectl...)...)
	var complaints strings.Builder
	cmd.Env, cmd.Stderr, cmd.WaitDelay = environment(), &complaints, grace
	// nsenter has a child in the node's PID namespace, which is to end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		return "", nil, err
	}
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n') // Forwarding from ADDRESS -> PORT
	stop = func() {
		cancel()
		_ = cmd.Wait() // it was killed
	}
	_, after, _ := strings.Cut(line, "Forwarding from ")
	address, _, found := strings.Cut(after, " -> ")
	if err != nil || !found {
		stop()
		return "", nil, fmt.Errorf("forwarding port %d of the pod %s: %w: %s", port, p.Name,
			errors.Join(err, context.Cause(c.broken)), line+strings.TrimSpace(complaints.String()))
	}
	// It has a line for each connection.
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	return address, stop, nil
}

// Machine is the address at which pods reach the machine.
func (c *Cluster) Machine() string { return c.net.machine() }
