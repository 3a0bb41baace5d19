package api

import (
	"context"
	"sync"

	"github.com/vmlet/vmlet/agent/fault"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"google.golang.org/grpc/codes"
)

// turns lets one stream at a time have each console or display. The zero value is ready.
type turns struct {
	mu  sync.Mutex
	now map[string]*turn
}

// turn is the stream that has it now.
type turn struct{ end context.CancelCauseFunc }

// take returns the context of a stream to what a key names; leave has to be called at its
// end.
func (t *turns) take(ctx context.Context, key string, sharing nodev1.Sharing) (_ context.Context, leave func(), err error) {
	if sharing == nodev1.Sharing_SHARING_UNSPECIFIED {
		return ctx, func() {}, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.now[key]
	if before != nil && sharing == nodev1.Sharing_SHARING_PRESERVE {
		return nil, nil, fault.Errorf(codes.AlreadyExists, "vm %s: another client is connected", key)
	}
	if before != nil {
		before.end(fault.Errorf(codes.Aborted, "vm %s: another client has taken over", key))
	}
	ctx, end := context.WithCancelCause(ctx)
	mine := &turn{end}
	if t.now == nil {
		t.now = make(map[string]*turn)
	}
	t.now[key] = mine
	return ctx, func() { t.leave(key, mine) }, nil
}

func (t *turns) leave(key string, mine *turn) {
	mine.end(nil)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now[key] == mine {
		delete(t.now, key)
	}
}
