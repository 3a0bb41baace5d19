package vm

import (
	"errors"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
	"google.golang.org/grpc/codes"
)

// TestFailedReset: what is said of a guest after a reset that failed is what its VMM
// says of it.
func TestFailedReset(t *testing.T) {
	for step, want := range map[string]lifecycle.State{"reset": lifecycle.Running, "reset, off": lifecycle.Paused} {
		t.Run(step, func(t *testing.T) {
			w, a := withRunning(t)
			w.FailStep(step, errors.New("no such disk"))
			_, err := a.Reset(t.Context(), "web")
			vmtest.WantCode(t, step, err, codes.Unavailable)
			a.wantState(t, "web", want)
			m, err := a.Get(t.Context(), "web")
			if err != nil {
				t.Fatal(err)
			}
			if message := m.Snapshot().GetStatus().GetMessage(); want == lifecycle.Paused && !strings.Contains(message, "no such disk") {
				t.Errorf("%q", message)
			}
		})
	}
}
