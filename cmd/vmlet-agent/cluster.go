package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"reflect"
	"time"

	"github.com/vmlet/vmlet/agent/config"
	"github.com/vmlet/vmlet/capabilities/clusterwide"
	"github.com/vmlet/vmlet/internal/inotify"
)

// underCluster lays the cluster's configuration under the agent's own. One that can't be read is
// logged, and the agent goes on without it: a node's VMs don't depend on it.
func underCluster(cfg config.Config, path string, log *slog.Logger) (config.Config, clusterwide.Configuration) {
	if path == "" {
		return cfg, clusterwide.Configuration{}
	}
	cluster, err := clusterwide.Load(path)
	if err != nil {
		log.Error("cluster's configuration is not used", "error", err)
		return cfg, cluster
	}
	merged := cluster.Under(clusterwide.Configuration{
		ObsoleteCPUModels: cfg.ObsoleteCPUModels, PermittedHostDevices: cfg.PermittedHostDevices, VirtualizationProfile: cfg.VirtualizationProfile,
	})
	cfg.ObsoleteCPUModels, cfg.PermittedHostDevices, cfg.VirtualizationProfile =
		merged.ObsoleteCPUModels, merged.PermittedHostDevices, merged.VirtualizationProfile
	return cfg, cluster
}

// lookInterval is how often a file is looked at that can't be watched. The kubelet brings a change to
// a node within a minute or two.
const lookInterval = time.Minute

// untilChanged ends ctx when the file says something else than the agent was started with: who restarts
// the agent has it read that, which no VM notices.
func untilChanged(ctx context.Context, path string, before clusterwide.Configuration, log *slog.Logger) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if path == "" {
		return ctx, cancel
	}
	go func() {
		var files inotify.Follower
		defer files.Close()
		for {
			// The kubelet changes a link beside the file.
			if err := files.Follow([]inotify.Interest{{Path: path, Written: true}, {Path: filepath.Dir(path), Inside: "*"}}); err != nil {
				log.Warn("cluster's configuration is looked at once a minute", "error", err)
			}
			if now, err := clusterwide.Load(path); err != nil {
				log.Error("cluster's configuration can't be read, and the former is kept", "error", err)
			} else if !reflect.DeepEqual(now, before) {
				log.Info("cluster's configuration has changed: the agent ends, to be started with it", "file", path)
				cancel()
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-files.Changes():
			case <-time.After(lookInterval):
			}
		}
	}()
	return ctx, cancel
}
