package inotify

// Follower watches interests whose folders come and go, set after set. The zero
// Follower watches nothing. It is for one goroutine.
type Follower struct {
	set *Set // nil: nothing could be watched yet
}

// Follow watches the interests as their folders are now, in place of what was
// watched before; it reports what happens from here on. Where nothing can be
// watched, what was watched before still is. The error is Watch's.
func (f *Follower) Follow(interests []Interest) error {
	fresh, err := Watch(interests)
	if fresh != nil {
		f.Close()
		f.set = fresh
	}
	return err
}

// Changes is the set's; nil while there is none: after an error of Follow a receiver needs
// a timer besides, or waits for ever.
func (f *Follower) Changes() <-chan struct{} {
	if f.set == nil {
		return nil
	}
	return f.set.Changes()
}

// Close ends the watch.
func (f *Follower) Close() {
	if f.set != nil {
		f.set.Close()
		f.set = nil
	}
}
