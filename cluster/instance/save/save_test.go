package save

import (
	"testing"
	"time"

	"github.com/vmlet/vmlet/cluster/instance/scene"
	"github.com/vmlet/vmlet/cluster/saves"
)

// TestTryAgain: twice as long after each failure, and five minutes at most.
func TestTryAgain(t *testing.T) {
	for failures, want := range map[int]time.Duration{1: 10 * time.Second, 2: 20 * time.Second, 5: 160 * time.Second, 6: 5 * time.Minute, 1000: 5 * time.Minute} {
		c := saves.Call{State: saves.Ended, Err: scene.ErrSave, Failures: failures, At: scene.Time}
		c.Directory = "x"
		if got := TryAgain(&c).Sub(scene.Time); got < want || got > want+time.Second {
			t.Errorf("after %d failures: %v, want %v", failures, got, want)
		}
	}
}
