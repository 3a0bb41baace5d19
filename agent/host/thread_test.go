package host

import (
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSpoiltThread is never the main one, which does not end before the process does.
func TestSpoiltThread(t *testing.T) {
	var all sync.WaitGroup
	for range 200 {
		together := make(chan struct{})
		for range 4 {
			all.Go(func() {
				<-together
				onSpoiltThread(func() {
					if unix.Gettid() == unix.Getpid() {
						t.Error("it is the main thread")
					}
				})
			})
		}
		close(together)
		all.Wait()
	}
}
