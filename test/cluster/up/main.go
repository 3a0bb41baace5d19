// Command up brings up a cluster for a person to try, and takes it away at Ctrl-C. With
// -deploy it has vmlet in it, for which two of the images have to be vmlet's; make cluster
// starts it so.
//
//	go run ./test/cluster/up [-nodes N] [-deploy FOLDER,... -programs FOLDER] [IMAGE.tar...]
//	go run ./test/cluster/up -redeploy -programs FOLDER
//
// Lines on its standard input do things to nodes: see lines.go. The second form puts what was rebuilt into a
// cluster that the first form runs: see redeploy.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/vmlet/vmlet/test/cluster"
)

func main() {
	deploy := flag.String("deploy", "", "apply kustomizations of vmlet, `FOLDER,...`, and load what deploy/examples/vm.yaml boots from")
	nodes := flag.Int("nodes", 1, "have `N` nodes")
	again := flag.Bool("redeploy", false, "put programs that were rebuilt into the cluster that runs")
	folder := flag.String("programs", "bin", "`FOLDER` of vmlet's programs, of which the images are")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err := error(nil)
	if *again {
		err = redeploy(ctx, *folder)
	} else {
		err = run(ctx, *nodes, *deploy, *folder, flag.Args())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, nodes int, deploy, programs string, images []string) (err error) {
	began := time.Now()
	if deploy != "" {
		// They stay while the cluster does, as nodes may come.
		folder, err := os.MkdirTemp("", "vmlet-examples-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(folder)
		say("making the images of deploy/examples/vm.yaml")
		more, err := exampleImages(ctx, folder)
		if err != nil {
			return err
		}
		images = append(images, more...)
	}
	c, err := cluster.Start(ctx, cluster.Options{Nodes: nodes, Images: images, Storage: true, Multus: true, IPv6: true, Logf: say})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	if deploy != "" {
		if err := install(ctx, c, strings.Split(deploy, ",")); err != nil {
			return err
		}
		now, err := sums(programs)
		if err != nil {
			return err
		}
		if err := note(c, now); err != nil {
			return err
		}
		if err := c.Share(); err != nil {
			return err
		}
	}
	fmt.Printf(instructions, time.Since(began).Round(time.Second), c.LogFile("COMPONENT"), c.KubeletDir(), cluster.PauseImage,
		c.ImportCommand("IMAGE.tar"), filepath.Dir(c.KubectlProgram()), c.Kubeconfig())
	if deploy != "" {
		fmt.Println("kubectl apply -f deploy/examples/vm.yaml")
	}
	if nodes > 1 {
		fmt.Printf("\nLines here do things to nodes (%s):\n%s", names(c), help(c))
		go obey(ctx, c, os.Stdin)
	}
	fmt.Println("\nready")
	select {
	case <-ctx.Done():
	case <-c.Broken().Done():
	}
	say("taking it away")
	return nil
}

func say(format string, args ...any) { fmt.Printf("cluster: "+format+"\n", args...) }

const instructions = `
The cluster is up, after %s; Ctrl-C takes all of it away.

logs:             %s
kubelet's folder: %s
an image:         %s (prints its arguments and waits)

In another terminal, as root:

# imports an image, as none can be pulled
%s
export PATH=%s:$PATH
export KUBECONFIG=%s
kubectl get nodes
`
