package host

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// onSpoiltThread runs do on a thread that does nothing else afterwards: do may change what
// the kernel knows of it, as its user or its cgroup.
func onSpoiltThread(do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if unix.Gettid() != unix.Getpid() {
			do()
			return
		}
		// The main thread would live on. It is locked, so that the next one is another.
		defer runtime.UnlockOSThread()
		onSpoiltThread(do)
	}()
	<-done
}
