package nodeobject

import "sync"

// Value is something that changes and that others follow. Its methods may be
// called concurrently.
type Value[T any] struct {
	mu      sync.Mutex
	value   T
	changed chan struct{}
}

// NewValue starts with a value.
func NewValue[T any](value T) *Value[T] {
	return &Value[T]{value: value, changed: make(chan struct{})}
}

// Get is the value as it is now, and a channel that is closed when there is
// another one.
func (v *Value[T]) Get() (T, <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.value, v.changed
}

// Set changes the value.
func (v *Value[T]) Set(value T) { v.Update(func(T) (T, bool) { return value, true }) }

// Update changes the value to what follows from the one before, if it is to.
func (v *Value[T]) Update(next func(T) (T, bool)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	value, change := next(v.value)
	if !change {
		return
	}
	v.value = value
	close(v.changed)
	v.changed = make(chan struct{})
}
