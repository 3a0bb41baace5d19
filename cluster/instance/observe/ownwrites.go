package observe

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// ownWrites are instances as this process wrote them, for as long as the cache may not have them: what
// follows from an older one would be refused, and is a request for nothing. The zero value has none. Its methods
// may be called concurrently.
type ownWrites struct {
	mu sync.Mutex
	by map[types.NamespacedName]ownWrite
}

type ownWrite struct {
	instance *kubevirtv1.VirtualMachineInstance
	// over are the versions that it replaced, one after the other.
	over map[string]bool
}

// note keeps an instance as the API server has stored it in the place of an earlier one.
func (w *ownWrites) note(before, stored *kubevirtv1.VirtualMachineInstance) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.by == nil {
		w.by = make(map[types.NamespacedName]ownWrite)
	}
	key := types.NamespacedName{Namespace: stored.Namespace, Name: stored.Name}
	over := map[string]bool{before.ResourceVersion: true}
	if last := w.by[key]; last.instance != nil && last.instance.ResourceVersion == before.ResourceVersion {
		over = last.over
		over[before.ResourceVersion] = true
	}
	w.by[key] = ownWrite{stored.DeepCopy(), over}
}

// latest returns what was written of an instance that the cache has an earlier version of, and else
// what the cache has. nil: it has none.
func (w *ownWrites) latest(key types.NamespacedName, cached *kubevirtv1.VirtualMachineInstance) *kubevirtv1.VirtualMachineInstance {
	w.mu.Lock()
	defer w.mu.Unlock()
	own, has := w.by[key]
	switch {
	case !has:
		return cached
	case cached != nil && cached.UID == own.instance.UID && own.over[cached.ResourceVersion]:
		return own.instance.DeepCopy()
	}
	delete(w.by, key) // the cache has it, or something later
	return cached
}
