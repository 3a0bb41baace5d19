package shim

import (
	"context"
	"testing"

	"golang.org/x/sync/semaphore"
)

// FuzzClient: what listens in a pod's volume may say anything, to the end of its
// connection. An agent gets errors of it, and is not kept.
func FuzzClient(f *testing.F) {
	frame := func(texts ...string) (out []byte) {
		for _, t := range texts {
			n := len(t)
			out = append(append(out, byte(n>>24), byte(n>>16), byte(n>>8), byte(n)), t...)
		}
		return out
	}
	const hello = `{"id":1,"body":{"major":1,"minor":5}}`
	f.Add(frame(hello))
	f.Add(frame(hello, `{"event":{"damaged":"x"}}`, `{"event":{"exit":{"reason":"crashed"}}}`))
	f.Add(frame(hello, `{"id":2,"body":{"vmms":[]}}`))
	f.Add(frame(hello, `{"id":2,"progress":{"step":"x"}}`, `{"id":2,"error":{"code":"","message":""}}`))
	f.Add(frame(hello, `{"id":2,"files":3}`, `{"id":2}`))
	f.Add(frame(`{"id":1,"body":null}`))
	f.Add(frame(`{"id":1,"body":{"major":1,"minor":99,"plan":{"files":[{}]},"keep":[],"notes":[null]}}`))
	f.Fuzz(func(t *testing.T, said []byte) {
		ours, theirs := pair(t)
		go func() {
			defer theirs.Close()
			if _, err := theirs.Write(said); err != nil {
				return
			}
			// What is asked is read, so that it can be asked.
			_ = theirs.CloseWrite()
			for b := make([]byte, 4<<10); ; {
				if _, err := theirs.Read(b); err != nil {
					return
				}
			}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), undoTime)
		defer cancel()
		room := semaphore.NewWeighted(testRoom)
		c, err := NewPodClient(ctx, ours, room)
		if err != nil {
			ours.Close()
			return
		}
		defer c.Close()
		if d, err := c.Describe(ctx, Describe{}); err == nil { // or an error, either is right
			d.Done()
		}
		for range c.Events() {
			// closed when they have hung up
		}
		if ctx.Err() != nil {
			t.Error("it was kept waiting by one that has hung up")
		}
		if !room.TryAcquire(testRoom) {
			t.Error("room is still taken for one that has hung up")
		}
	})
}
