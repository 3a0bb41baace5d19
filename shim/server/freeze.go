package server

import "time"

// freeze is a guest whose file systems are frozen, or may be; guarded by session.mu.
type freeze struct {
	// thaw fires when they are to be thawed; nil: they are not frozen.
	thaw *time.Timer
	// failed is when the log last said that they could not be thawed.
	failed time.Time
}

// end disarms the thaw, and reports whether it was armed; session.mu is held.
func (f *freeze) end() (was bool) {
	if was = f.thaw != nil; was {
		f.thaw.Stop()
	}
	*f = freeze{}
	return was
}
