package api

import (
	"context"
	"testing"

	"github.com/vmlet/vmlet/agent/fault"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	beside   = nodev1.Sharing_SHARING_UNSPECIFIED
	takeOver = nodev1.Sharing_SHARING_TAKE_OVER
	preserve = nodev1.Sharing_SHARING_PRESERVE
)

// TestTurns: of those who take over there is one, the last; others stand beside it.
func TestTurns(t *testing.T) {
	var all turns
	take := func(key string, sharing nodev1.Sharing) (context.Context, func()) {
		t.Helper()
		ctx, leave, err := all.take(t.Context(), key, sharing)
		if err != nil {
			t.Fatal(err)
		}
		return ctx, leave
	}
	other, _ := take("b", takeOver)
	watching, _ := take("a", beside)
	first, leaveFirst := take("a", takeOver)
	if _, _, err := all.take(t.Context(), "a", preserve); status.Code(fault.ToStatus(err)) != codes.AlreadyExists {
		t.Errorf("while one is there: %v, want AlreadyExists", err)
	}
	second, leaveSecond := take("a", takeOver)
	if cause := context.Cause(first); status.Code(fault.ToStatus(cause)) != codes.Aborted {
		t.Errorf("the first ended with %v, want Aborted", cause)
	}
	leaveFirst() // does not take the second's place away
	if _, _, err := all.take(t.Context(), "a", preserve); err == nil {
		t.Error("the second is forgotten")
	}
	if second.Err() != nil || other.Err() != nil || watching.Err() != nil {
		t.Errorf("ended: %v, %v, %v, want none", second.Err(), other.Err(), watching.Err())
	}
	leaveSecond()
	if _, leave := take("a", preserve); len(all.now) != 2 {
		t.Errorf("%d are kept, want 2", len(all.now))
	} else if leave(); len(all.now) != 1 {
		t.Errorf("%d are kept, want 1", len(all.now))
	}
}
