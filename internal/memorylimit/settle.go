package memorylimit

import (
	"context"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"github.com/vmlet/vmlet/internal/trim"
)

// settled is when a program has long come up: its caches are filled and its certificate is there.
const settled = time.Minute

// gcPercent keeps a heap close to what is in use: garbage of a program that waits for something to do is little.
const gcPercent = 50

// Settle waits until the program has come up, and then gives back what only that has needed. From then on
// garbage is collected at half a heap's growth, unless GOGC says at which. It returns early when ctx ends.
func Settle(ctx context.Context, log *slog.Logger) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(settled):
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if err := trim.Process(); err != nil {
		log.Warn("failed to give back the memory that the start has needed", "error", err)
	}
}
