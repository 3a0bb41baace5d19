package nodeobject

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"time"

	"github.com/vmlet/vmlet/agent/kube"
	"github.com/vmlet/vmlet/capabilities/labels"
)

// FileConfig configures KeepFile.
type FileConfig struct {
	// Path of the file.
	Path   string
	Source Source
	// Neighbour, if known: beside a virt-handler the file stays as it is.
	Neighbour *Neighbour
	Log       *slog.Logger
}

// KeepFile keeps the labels in a file of Node Feature Discovery's local source,
// which puts them on the Node: that needs no right on Nodes. It returns when ctx
// ends.
func KeepFile(ctx context.Context, cfg FileConfig) {
	said := &kube.Complaint{Log: cfg.Log, What: "writing the labels for Node Feature Discovery"}
	retry := newRetry()
	for {
		changed := cfg.Source.Changed()
		standing, standingChanged := Standing{Known: true}, (<-chan struct{})(nil)
		if cfg.Neighbour != nil {
			standing, standingChanged = cfg.Neighbour.Standing()
		}
		var again <-chan time.Time
		if standing.Known && !standing.Aside {
			err := writeFile(ctx, cfg)
			if errors.Is(err, ErrNoFacts) {
				err = nil // they will come
			}
			said.About(ctx, err)
			if err != nil {
				again = time.After(retry.failed(time.Now(), err))
			} else {
				retry.reset()
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-standingChanged:
		case <-again:
		}
	}
}

// writeFile brings the file to what the facts are; it isn't touched if it is that
// already.
func writeFile(ctx context.Context, cfg FileConfig) error {
	before, err := labels.ReadNFD(cfg.Path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	facts, err := cfg.Source.Facts(ctx, before)
	if err != nil {
		return err
	}
	known, unknown := facts.fields()
	want := map[string]string{}
	for f, value := range known {
		want[f.key] = value
	}
	for f := range unknown {
		if value, there := before[f.key]; there {
			want[f.key] = value
		}
	}
	if maps.Equal(before, want) {
		return nil
	}
	return labels.WriteNFD(cfg.Path, want)
}
