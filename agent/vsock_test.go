package agent

import (
	"testing"

	vmletv1 "github.com/vmlet/vmlet/proto/vmlet/v1"
	"google.golang.org/grpc/codes"
)

// TestVsockIsOneVMs: a context id that a running VM has is no other's.
func TestVsockIsOneVMs(t *testing.T) {
	w := newWorld(t)
	a := w.start()
	for _, name := range []string{"one", "two"} {
		s := testSpec(name)
		s.Devices = &vmletv1.Devices{Vsock: &vmletv1.Vsock{Cid: 42}}
		if _, err := a.create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	a.mustStart(t, "one")
	_, err := a.agent.start(t.Context(), "two", startOptions{}, nil)
	wantCode(t, "start", err, codes.FailedPrecondition)
	if _, err := a.kill(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	a.mustStart(t, "two")
}
