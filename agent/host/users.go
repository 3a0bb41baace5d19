package host

import (
	"fmt"
	"hash/crc32"
	"sync"
)

// Users hands out user ids, each to one VM at a time. It may be used
// concurrently.
type Users struct {
	first, count uint32

	mu    sync.Mutex
	next  uint32 // an id that was given back is used again as late as can be
	taken map[uint32]string
}

// NewUsers hands out count ids from first on. Another instance than "" begins
// somewhere in between, so that agents side by side, which know nothing of each
// other, are unlikely to hand out the same.
func NewUsers(first, count uint32, instance string) *Users {
	u := &Users{first: first, count: count, taken: make(map[uint32]string)}
	if instance != "" {
		u.next = crc32.ChecksumIEEE([]byte(instance)) % count
	}
	return u
}

// Take gives a VM an id that no other has.
func (u *Users) Take(vm string) (uint32, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for range u.count {
		uid := u.first + u.next
		u.next = (u.next + 1) % u.count
		if _, taken := u.taken[uid]; !taken {
			u.taken[uid] = vm
			return uid, nil
		}
	}
	return 0, fmt.Errorf("every user id from %d to %d is taken by a running VM: widen users.count in the agent's configuration", u.first, u.first+u.count-1)
}

// Claim notes that a VM which runs already has an id, also one out of range.
func (u *Users) Claim(uid uint32, vm string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if other, taken := u.taken[uid]; taken && other != vm {
		return fmt.Errorf("user id %d is that of vm %s too", uid, other)
	}
	u.taken[uid] = vm
	return nil
}

// Release takes an id back from a VM. One that is another's stays that one's: a
// lease that could not be given back may be found when its id is in use again.
func (u *Users) Release(uid uint32, vm string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.taken[uid] == vm {
		delete(u.taken, uid)
	}
}

// Contains says whether an id is in the range.
func (u *Users) Contains(uid uint32) bool { return uid-u.first < u.count }
