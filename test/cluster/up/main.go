// Command up brings up a cluster for a person to try, and takes it away at Ctrl-C. With
// -deploy it applies vmlet's manifests, for which one of the images has to be vmlet's.
//
//	go run ./test/cluster/up [-deploy FOLDER] [IMAGE.tar...]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/vmlet/vmlet/test/cluster"
)

func main() {
	deploy := flag.String("deploy", "", "apply the kustomization in this `FOLDER`, and wait for vmlet's agent")
	flag.Parse()
	if err := run(*deploy, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run(deploy string, images []string) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	began := time.Now()
	c, err := cluster.Start(ctx, cluster.Options{Images: images, Logf: say})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	if deploy != "" {
		if err := install(ctx, c, deploy); err != nil {
			return err
		}
	}
	fmt.Printf(instructions, time.Since(began).Round(time.Second), c.Kubeconfig(), c.KubectlProgram(), c.LogFile("COMPONENT"),
		c.KubeletDir(), cluster.PauseImage)
	if deploy != "" {
		fmt.Print(deployed)
	}
	select {
	case <-ctx.Done():
	case <-c.Broken().Done():
	}
	say("taking it away")
	return nil
}

// install applies vmlet's manifests and waits until its agent is ready.
func install(ctx context.Context, c *cluster.Cluster, folder string) error {
	say("applying %s", folder)
	if _, err := c.ApplyFolder(ctx, folder); err != nil {
		return err
	}
	return c.RolledOut(ctx, "vmlet", "daemonset/vmlet-agent")
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

// deployed is how to have a VM where vmlet is.
const deployed = `
vmlet's agent is ready. A VM, which counts on its console:

  go run ./test/guest/mkguest /srv/vmlet-guest
  kubectl apply -f test/cluster/vm.yaml
  kubectl wait --for=condition=Ready pod/counter && kubectl logs -f counter
  kubectl -n vmlet exec daemonset/vmlet-agent -- vmlet list
`
