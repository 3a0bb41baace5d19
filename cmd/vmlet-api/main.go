// Command vmlet-api answers the API server about VirtualMachines: it fills in defaults, refuses
// what can't be honoured, and serves the API that virtctl calls. Any number of replicas may run.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/cobra"
	versions "k8s.io/apimachinery/pkg/util/version"

	"github.com/vmlet/vmlet/cluster/apiserver"
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
		fmt.Fprintln(os.Stderr, "vmlet-api:", err)
		return 1
	}
	return 0
}

func command() *cobra.Command {
	o := apiserver.Options{Version: program.Version(version)}
	cmd := &cobra.Command{
		Use: "vmlet-api", Short: "Serve the admission webhooks and the aggregated API of VirtualMachines", Version: o.Version,
		SilenceUsage: true, SilenceErrors: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			err = o.Check()
			for _, port := range []struct {
				flag  string
				value int
			}{{"--webhook-port", o.Port}, {"--subresources-port", o.SubresourcesPort}} {
				if port.value < 1 || port.value > 65535 {
					err = errors.Join(err, fmt.Errorf("%s: %d is no port: choose one from 1 to 65535", port.flag, port.value))
				}
			}
			if _, fault := versions.ParseSemantic(o.KubeVirt); fault != nil {
				err = errors.Join(err, fmt.Errorf("--kubevirt-version: %q is no version such as v1.9.0", o.KubeVirt))
			}
			if err != nil {
				return err
			}
			if o.Log, err = o.NewLog(os.Stderr); err != nil {
				return err
			}
			memorylimit.Set(o.Log, memlimit.FromCgroup)
			go memorylimit.Settle(cmd.Context(), o.Log)
			return apiserver.Run(cmd.Context(), o)
		},
	}
	o.Flags(cmd)
	cmd.Flags().IntVar(&o.Port, "webhook-port", 9443, "`PORT` at which webhooks are served")
	cmd.Flags().IntVar(&o.SubresourcesPort, "subresources-port", 8443, "`PORT` at which the aggregated API is served")
	cmd.Flags().StringVar(&o.KubeVirt, "kubevirt-version", "v1.9.0", "`VERSION` of KubeVirt whose API is followed: virtctl warns if its own is another")
	return cmd
}
