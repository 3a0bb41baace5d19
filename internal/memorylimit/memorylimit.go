// Package memorylimit keeps a program's memory below what its cgroup may have.
package memorylimit

import (
	"log/slog"
	"math"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// share is how much of the cgroup's memory limit Go may use before it collects garbage more often:
// the rest is for what the kernel counts beside it.
const share = 0.8

// Set keeps Go's memory within a limit, unless GOMEMLIMIT says what it may have.
func Set(log *slog.Logger, limit memlimit.Provider) {
	set, err := memlimit.Set(memlimit.WithProvider(limit), memlimit.WithRatio(share))
	switch {
	case err != nil:
		log.Warn("memory limit of the program's cgroup is unknown", "error", err)
	case set < math.MaxInt64:
		log.Info("memory limit set", "bytes", set)
	}
}
