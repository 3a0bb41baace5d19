package lifecycle

import (
	"errors"
	"slices"
	"strings"
	"testing"

	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// TestCheck has every operation in every state: + done, = already so, w waited
// for, - refused.
func TestCheck(t *testing.T) {
	states := []State{Created, Starting, Running, Paused, Saving, Saved, Restoring, Stopping, Stopped, Crashed}
	table := map[Operation]string{
		//       created starting running paused saving saved restoring stopping stopped crashed
		Start:   "+----+--++",
		Restore: "+----+--++",
		Pause:   "--++------",
		Resume:  "--++------",
		Reset:   "--++------",
		Resize:  "+-++----++",
		Attach:  "+-++----++",
		Detach:  "+-++----++",
		Save:    "--++------",
		Stop:    "=-++-=-w==",
		Kill:    "=++++=++==",
		Delete:  "+----+--++",
		Console: "--+++--+--",
		Display: "--+++--+--",
		Freeze:  "--+-------",
		Reboot:  "--+-------",
		Suspend: "--+-------",
		Inspect: "--+----+--",
	}
	marks := map[Verdict]byte{Refuse: '-', Do: '+', Already: '=', Wait: 'w'}
	for op, want := range table {
		for i, s := range states {
			verdict, err := Check("web-1", op, s)
			if marks[verdict] != want[i] {
				t.Errorf("%s of a VM that is %s: %c, want %c", op, Name(s), marks[verdict], want[i])
			}
			var refused *StateError
			if (verdict == Refuse) != errors.As(err, &refused) {
				t.Errorf("%s of a VM that is %s: verdict %v with error %v", op, Name(s), verdict, err)
			}
			if err != nil && !strings.Contains(err.Error(), "web-1 is "+Name(s)) {
				t.Errorf("the error names neither VM nor state: %v", err)
			}
		}
	}
}

func TestStartOfAPausedVM(t *testing.T) {
	_, err := Check("web-1", Start, Paused)
	if want := "vm web-1 is paused: resume it"; err == nil || err.Error() != want {
		t.Errorf("the error is %v, want %q", err, want)
	}
}

// TestLiveStatesEnd sees that a VMM can be lost in any state that has one, and
// that nothing becomes unspecified.
func TestLiveStatesEnd(t *testing.T) {
	for n := range nodev1.State_name {
		s := State(n)
		if s == nodev1.State_STATE_UNSPECIFIED {
			continue
		}
		if !May(s, s) {
			t.Errorf("%s can't stay", Name(s))
		}
		if Live(s) && (!May(s, Crashed) || !May(s, Stopped)) {
			t.Errorf("a VM that is %s can't end", Name(s))
		}
		if !Live(s) && May(s, Running) {
			t.Errorf("a VM that is %s runs without being started", Name(s))
		}
		if slices.Contains(follows()[s], nodev1.State_STATE_UNSPECIFIED) {
			t.Errorf("%s is followed by nothing known", Name(s))
		}
	}
}
