package vm

import (
	"context"
	"sync"
)

// background runs what goes on beside the calls of the API.
type background struct {
	// ctx lives as long as the agent serves.
	ctx   context.Context
	tasks sync.WaitGroup
}

// Context ends when the agent does; VMs go on after that.
func (b *background) Context() context.Context { return b.ctx }

// Go runs what Wait waits for. It is to end with Context.
func (b *background) Go(f func()) { b.tasks.Go(f) }

// Wait returns when nothing is watched any more, after Context has ended.
func (b *background) Wait() { b.tasks.Wait() }
