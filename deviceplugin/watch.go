package deviceplugin

import (
	"context"
	"log/slog"
	"time"

	"github.com/vmlet/vmlet/internal/inotify"
)

// blindInterval is how often is looked where the kernel doesn't let watch.
const blindInterval = time.Second

// watch tells that something among its interests has changed.
type watch struct {
	interests func() []inotify.Interest
	tell      func()
	log       *slog.Logger

	files inotify.Follower
	blind bool // something can't be watched
}

// newWatch begins to watch. tell must not block.
func newWatch(interests func() []inotify.Interest, tell func(), log *slog.Logger) *watch {
	w := &watch{interests: interests, tell: tell, log: log}
	w.arm()
	return w
}

// run tells changes, and what comes of more, until ctx ends.
func (w *watch) run(ctx context.Context, more <-chan struct{}) {
	defer w.files.Close()
	for {
		if !w.wait(ctx, more) {
			return
		}
		// Watched again before anybody looks: the fresh set reports what
		// happens from here on.
		w.arm()
		w.tell()
	}
}

func (w *watch) wait(ctx context.Context, more <-chan struct{}) bool {
	var tick <-chan time.Time
	if w.blind {
		timer := time.NewTimer(blindInterval)
		defer timer.Stop()
		tick = timer.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-w.files.Changes():
	case <-more:
	case <-tick:
	}
	return true
}

// arm watches the folders as they are now. What can't be watched is said once.
func (w *watch) arm() {
	err := w.files.Follow(w.interests())
	if err != nil && !w.blind {
		w.log.Warn("changes can't be watched; they are looked for each second", "error", err)
	}
	w.blind = err != nil
}
