package nodeobject

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/vmlet/vmlet/agent/kube"
	"github.com/vmlet/vmlet/internal/inotify"
)

const (
	// cpuManagerState is the file in the kubelet's folder that says how it gives
	// CPUs (k8s.io/kubernetes pkg/kubelet/cm, cpuManagerStateFileName).
	cpuManagerState = "cpu_manager_state"
	// maxCPUManagerState bounds it, in bytes: it has a line for each container
	// with CPUs of its own.
	maxCPUManagerState = 8 << 20
	// unwatched is how often a file is read that can't be watched.
	unwatched = time.Minute
)

// CPUManagerFile is that file in a kubelet's folder.
func CPUManagerFile(kubeletDir string) string { return kubeletDir + "/" + cpuManagerState }

// FollowCPUManager tells whether the kubelet has the static CPU manager, each time
// that the file can be read. It returns when ctx ends.
func FollowCPUManager(ctx context.Context, path string, tell func(static bool), log *slog.Logger) {
	var follower inotify.Follower
	defer follower.Close()
	again := time.NewTicker(unwatched)
	defer again.Stop()
	said := &kube.Complaint{Log: log, What: "reading how the kubelet gives CPUs"}
	for {
		// Watched before it is read: nothing falls between.
		blind := follower.Follow([]inotify.Interest{{Path: path, Written: true}})
		static, err := readCPUManager(path)
		said.About(ctx, err)
		if err == nil {
			tell(static)
		}
		var tick <-chan time.Time
		if blind != nil {
			tick = again.C
		}
		select {
		case <-ctx.Done():
			return
		case <-follower.Changes():
		case <-tick:
		}
	}
}

// readCPUManager reports whether the policy is "static".
func readCPUManager(path string) (static bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	var state struct {
		PolicyName string `json:"policyName"`
	}
	if err := json.NewDecoder(io.LimitReader(f, maxCPUManagerState)).Decode(&state); err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	if state.PolicyName == "" {
		return false, fmt.Errorf("%s: it names no policy", path)
	}
	return state.PolicyName == "static", nil
}
