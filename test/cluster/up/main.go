// Command up brings up a cluster for a person to try, and takes it away at Ctrl-C.
//
//	go run ./test/cluster/up [IMAGE.tar...]
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/vmlet/vmlet/test/cluster"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run(images []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	began := time.Now()
	c, err := cluster.Start(ctx, cluster.Options{Images: images, Logf: say})
	if err != nil {
		return err
	}
	fmt.Printf(instructions, time.Since(began).Round(time.Second), c.Kubeconfig(), c.KubectlProgram(), c.LogFile("COMPONENT"),
		c.KubeletDir(), cluster.PauseImage)
	select {
	case <-ctx.Done():
	case <-c.Broken().Done():
	}
	say("taking it away")
	return c.Stop()
}

func say(format string, args ...any) { fmt.Printf("cluster: "+format+"\n", args...) }

const instructions = `
The cluster is up, after %s. In another terminal, as root:

  export KUBECONFIG=%s
  alias kubectl=%s
  kubectl get nodes

logs:             %s
kubelet's folder: %s
an image:         %s (prints its arguments and waits; nothing can be pulled)

Ctrl-C takes all of it away.
`
