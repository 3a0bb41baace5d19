// Command vmlet-controller makes VirtualMachines what their specs say. Of several replicas one
// leads; the others wait.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/vmlet/vmlet/cluster/controller"
	"github.com/vmlet/vmlet/cluster/pool"
	"github.com/vmlet/vmlet/internal/memorylimit"
	"github.com/vmlet/vmlet/internal/program"
)

// version is set by the linker: -ldflags "-X main.version=v1.2.3".
var version string

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), program.EndSignals()...)
	defer stop()
	context.AfterFunc(ctx, stop)
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "vmlet-controller:", err)
		return 1
	}
	return 0
}

func command() *cobra.Command {
	o := controller.Options{Version: program.Version(version)}
	cmd := &cobra.Command{
		Use: "vmlet-controller", Short: "Reconcile VirtualMachines", Version: o.Version,
		SilenceUsage: true, SilenceErrors: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			err = o.Check()
			if o.Launcher == "" {
				err = errors.Join(err, errors.New("--launcher-image is required: name the agents' image, which has the VMMs"))
			}
			if faults := validation.IsDNS1123Subdomain(o.ClusterDomain); len(faults) > 0 {
				err = errors.Join(err, fmt.Errorf("--cluster-domain: %q: %s", o.ClusterDomain, faults[0]))
			}
			if o.SavesPerNode < 1 {
				err = errors.Join(err, fmt.Errorf("--saves-per-node: %d: name 1 or more", o.SavesPerNode))
			}
			if o.PoolBurst < 1 {
				err = errors.Join(err, fmt.Errorf("--pool-burst: %d: name 1 or more", o.PoolBurst))
			}
			if err != nil {
				return err
			}
			if o.Log, err = o.NewLog(os.Stderr); err != nil {
				return err
			}
			if o.Pod, err = os.Hostname(); err != nil { // a pod's hostname is its name
				return err
			}
			memorylimit.Set(o.Log, memlimit.FromCgroup)
			go memorylimit.Settle(cmd.Context(), o.Log)
			return controller.Run(cmd.Context(), o)
		},
	}
	o.Flags(cmd)
	cmd.Flags().StringVar(&o.Launcher, "launcher-image", "", "`IMAGE` of VMs' pods: the agents', which has the VMMs (required)")
	cmd.Flags().StringVar(&o.ClusterDomain, "cluster-domain", "cluster.local", "`DOMAIN` of the cluster's DNS, in which guests look up names")
	cmd.Flags().IntVar(&o.SavesPerNode, "saves-per-node", 1, "save the memory of at most `N` VMs of a node at once; others wait for their turn")
	cmd.Flags().IntVar(&o.PoolBurst, "pool-burst", pool.DefaultBurst, "make, change or remove at most `N` VMs of a pool in one go")
	return cmd
}
