package memorylimit

import (
	"errors"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
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

// TestEachProgram: whatever runs in a container of its own, with a limit of memory, keeps within it.
func TestEachProgram(t *testing.T) {
	for _, program := range []string{"vmlet-agent", "vmlet-api", "vmlet-autopilot", "vmlet-controller", "vmlet-importer"} {
		files, err := filepath.Glob("../../cmd/" + program + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", program, files, err)
		}
		sets := false
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			sets = sets || strings.Contains(string(text), "memorylimit.Set(")
		}
		if !sets {
			t.Errorf("%s does not set its limit", program)
		}
	}
}
