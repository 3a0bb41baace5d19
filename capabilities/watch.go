package capabilities

import (
	"context"
	"slices"
	"time"

	"github.com/vmlet/vmlet/internal/inotify"
)

// A change is taken for complete when nothing has happened for settleQuiet, and
// at the latest after settleMost: udev sets a new device's owner and mode a
// moment after it appears, a package's files come one after the other.
const (
	settleQuiet = 200 * time.Millisecond
	settleMost  = 2 * time.Second
)

// blindInterval is how often the machine is looked at where the kernel doesn't let all of
// it be watched. It costs a few reads as long as nothing has changed.
const blindInterval = time.Minute

// Watch keeps the document true until ctx ends: it asks for it once, and again
// when a device node, a VMM's program or a firmware descriptor changes. Where
// the kernel doesn't let it watch, that is logged once, and the machine is looked
// at each minute, and when it is asked for: Document and Hypervisors need no watch to
// be right.
func (k *Keeper) Watch(ctx context.Context) {
	w := &watch{keeper: k, interval: blindInterval}
	defer w.files.Close()
	for {
		// The new watches are there before the machine is asked again: nothing
		// falls between.
		w.arm()
		if _, err := k.Document(ctx); err != nil {
			return
		}
		if !slices.Equal(w.interests, w.wanted()) {
			// An answer depends on files that nobody knew of. What happened to
			// them since, the document sees that is made now.
			w.arm()
			if _, err := k.Document(ctx); err != nil {
				return
			}
		}
		if !w.wait(ctx) {
			return
		}
	}
}

// watch is what is watched at present.
type watch struct {
	keeper    *Keeper
	interests []inotify.Interest
	files     inotify.Follower
	interval  time.Duration // of looking while blind
	blind     bool          // something can't be watched
	told      bool          // that watching failed
}

func (w *watch) wanted() []inotify.Interest { return w.keeper.sources.interests(w.keeper.kept.files()) }

// arm watches what is of interest as the folders are now. If that fails, what
// was watched before still is.
func (w *watch) arm() {
	w.interests = w.wanted()
	err := w.files.Follow(w.interests)
	if err != nil && !w.told {
		w.told = true
		w.keeper.sources.log().Warn("failed to watch devices and programs: looking for changes at intervals", "interval", w.interval, "error", err)
	}
	w.blind = err != nil
}

// wait returns true when something has changed and settled, or may have while blind;
// false: ctx has ended.
func (w *watch) wait(ctx context.Context) bool {
	changes := w.files.Changes()
	var tick <-chan time.Time
	if w.blind {
		timer := time.NewTimer(w.interval)
		defer timer.Stop()
		tick = timer.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-tick:
		return true
	case <-changes:
	}
	return settle(ctx, changes)
}

func settle(ctx context.Context, changes <-chan struct{}) bool {
	most := time.NewTimer(settleMost)
	defer most.Stop()
	quiet := time.NewTimer(settleQuiet)
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-most.C:
			return true
		case <-quiet.C:
			return true
		case <-changes:
			quiet.Reset(settleQuiet)
		}
	}
}
