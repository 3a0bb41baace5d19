// Command up brings up a cluster for a person to try, and takes it away at Ctrl-C. With
// -deploy it has vmlet in it, for which two of the images have to be vmlet's; make cluster
// starts it so.
//
//	go run ./test/cluster/up [-deploy FOLDER,...] [IMAGE.tar...]
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
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, *deploy, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, deploy string, images []string) (err error) {
	began := time.Now()
	c, err := start(ctx, deploy != "", images)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	if deploy != "" {
		if err := install(ctx, c, strings.Split(deploy, ",")); err != nil {
			return err
		}
	}
	fmt.Printf(instructions, time.Since(began).Round(time.Second), c.LogFile("COMPONENT"), c.KubeletDir(), cluster.PauseImage,
		c.ImportCommand("IMAGE.tar"), filepath.Dir(c.KubectlProgram()), c.Kubeconfig())
	if deploy != "" {
		fmt.Println("kubectl apply -f deploy/examples/vm.yaml")
	}
	fmt.Println("\nready")
	select {
	case <-ctx.Done():
	case <-c.Broken().Done():
	}
	say("taking it away")
	return nil
}

// start brings the cluster up with its images, those of the example among them if it is to
// have any.
func start(ctx context.Context, examples bool, images []string) (*cluster.Cluster, error) {
	if examples {
		folder, err := os.MkdirTemp("", "vmlet-examples-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(folder)
		say("making the images of deploy/examples/vm.yaml")
		more, err := exampleImages(ctx, folder)
		if err != nil {
			return nil, err
		}
		images = append(images, more...)
	}
	return cluster.Start(ctx, cluster.Options{Images: images, Storage: true, Logf: say})
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
