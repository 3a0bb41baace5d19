// Command loop is the CSI driver of package csi on a node.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/vmlet/vmlet/test/csi"
)

func main() {
	var o csi.Options
	flag.StringVar(&o.Root, "root", "/var/lib/csi-loop", "`FOLDER` of volumes and snapshots")
	flag.StringVar(&o.Kubelet, "kubelet", "/var/lib/kubelet", "the kubelet's `FOLDER`")
	flag.StringVar(&o.Node, "node", "", "the node's `NAME`")
	flag.BoolVar(&o.Attach, "attach", false, "volumes are attached to nodes, which share their folder")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := csi.Run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "loop:", err)
		os.Exit(1)
	}
}
