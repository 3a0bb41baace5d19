package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmlet/vmlet/autopilot/tuning"
)

// tuneEach is how often a node is looked at. The kubelet takes up to a minute to bring a changed
// ConfigMap into a pod.
const tuneEach = 30 * time.Second

func tuneCommand() *cobra.Command {
	var n tuning.Node
	var level, format string
	cmd := &cobra.Command{
		Use: "tune", Short: "Bring a node's files in line with the asset node-tuning, and keep them so", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := newLog(cmd.ErrOrStderr(), level, format)
			if err != nil {
				return usage{err}
			}
			tune(cmd.Context(), n, log)
			return nil
		},
	}
	set := cmd.Flags()
	set.StringVar(&n.Wanted, "wanted", "/etc/vmlet-node-tuning", "`FOLDER` with the files that are wanted")
	set.StringVar(&n.Kubelet, "kubelet", "/etc/kubernetes/kubelet.conf.d", "`FOLDER` that is the kubelet's --config-dir")
	set.StringVar(&n.HugePages, "hugepages", "/sys/kernel/mm/hugepages", "`FOLDER` of the kernel's huge pages")
	set.StringVar(&level, "log-level", "info", "`LEVEL`: debug, info, warn or error")
	set.StringVar(&format, "log-format", "text", "`FORMAT`: text or json")
	return cmd
}

// tune goes on until ctx ends. A fault is logged once.
func tune(ctx context.Context, n tuning.Node, log *slog.Logger) {
	told := ""
	for {
		changed, err := n.Apply()
		for _, file := range changed {
			log.Info("file changed: a drop-in counts when the kubelet is restarted", "file", file)
		}
		switch {
		case err == nil:
			told = ""
		case err.Error() != told:
			told = err.Error()
			log.Error("node is not as it is wanted", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(tuneEach):
		}
	}
}
