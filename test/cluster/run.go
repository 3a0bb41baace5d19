package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// environment is this process's without what Kubernetes' programs read, by which they would take a user's cluster,
// or his habits, for theirs: KUBECONFIG, which some prefer to their flags, KUBERC, KUBERNETES_SERVICE_HOST.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "KUBE") })
}

// run runs a program of the machine's and returns what it printed. It doesn't
// wait for a cluster that has broken.
func (c *Cluster) run(ctx context.Context, in io.Reader, program string, args ...string) (string, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.broken, func() { cancel(context.Cause(c.broken)) })()
	cmd := exec.CommandContext(ctx, program, args...)
	var out, complaints bytes.Buffer
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = environment(), in, &out, &complaints
	// What it has started may hold on to its output.
	cmd.WaitDelay = grace
	err := cmd.Run()
	if err == nil {
		return out.String(), nil
	}
	if why := context.Cause(ctx); why != nil {
		err = why
	}
	return out.String(), fmt.Errorf("%s %s: %w: %s", filepath.Base(program), strings.Join(args, " "), err,
		strings.TrimSpace(complaints.String()))
}

// answers waits until a program that asks a component has no complaint.
func (n *Node) answers(ctx context.Context, component, program string, args ...string) error {
	c := n.cluster
	for {
		_, err := c.run(ctx, nil, program, args...)
		if err == nil {
			return nil
		}
		select {
		case <-c.broken.Done():
			return context.Cause(c.broken)
		case <-ctx.Done():
			return n.blame(component, fmt.Errorf("%s does not answer: %w", component, err))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// blame adds to an error the end of the log of the component that is most
// likely to be the cause, unless one has ended: then that is.
func (n *Node) blame(component string, err error) error {
	if ended := context.Cause(n.cluster.broken); ended != nil {
		return ended
	}
	return fmt.Errorf("%w%s", err, n.tail(component))
}

// componentEnded is called when one ends by itself.
func (n *Node) componentEnded(name, how string) {
	n.cluster.fail(fmt.Errorf("%s: %s ended by itself: %s%s", n.Name(), name, how, n.tail(name)))
}

// Of a component's log an error has as much as this.
const (
	tailLines = 12
	tailBytes = 16 << 10
)

// tail is the end of a component's log, to be added to an error.
func (n *Node) tail(component string) string {
	text, err := lastBytes(n.LogFile(component))
	if err != nil {
		return fmt.Sprintf("; its log can't be read: %v", err)
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	lines = lines[max(0, len(lines)-tailLines):]
	return fmt.Sprintf("\nthe last lines of %s's log:\n  %s", component, strings.Join(lines, "\n  "))
}

func lastBytes(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", err
	}
	text := make([]byte, tailBytes)
	n, err := f.ReadAt(text, max(0, st.Size()-tailBytes))
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return string(text[:n]), nil
}
