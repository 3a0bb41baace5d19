package memorylimit

import (
	"errors"
	"log/slog"
	"math"
	"runtime/debug"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// TestMemoryLimit: Go stays within the cgroup's limit with room to spare, and what the
// user has set, or was not found out, changes nothing.
func TestMemoryLimit(t *testing.T) {
	const before = 1 << 40
	unknown := func() (uint64, error) { return 0, errors.New("no cgroup") }
	for _, test := range []struct {
		name     string
		variable string
		limit    memlimit.Provider
		want     int64
	}{
		{"a limit", "", memlimit.Limit(1000 << 20), 800 << 20},
		{"none", "", func() (uint64, error) { return 0, memlimit.ErrNoLimit }, math.MaxInt64},
		{"unknown", "", unknown, before},
		{"the user's own", "1TiB", memlimit.Limit(1000 << 20), before},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.variable != "" {
				t.Setenv("GOMEMLIMIT", test.variable)
			}
			defer debug.SetMemoryLimit(debug.SetMemoryLimit(before))
			Set(slog.New(slog.DiscardHandler), test.limit)
			if got := debug.SetMemoryLimit(-1); got != test.want {
				t.Errorf("%d bytes, want %d", got, test.want)
			}
		})
	}
}
