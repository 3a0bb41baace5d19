package server

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// giveUpCapabilities leaves this thread, and what it starts as a user other than root,
// without a capability in any set (capabilities(7)): the change of user empties the
// permitted, effective and ambient sets, and leaves the inheritable and the bounding one.
// What is permitted to this thread itself stays, as starting the VMM takes it.
func giveUpCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData // 32 capabilities each
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("capget: %w", err)
	}
	sets[0].Inheritable, sets[1].Inheritable = 0, 0
	if err := unix.Capset(&header, &sets[0]); err != nil {
		return fmt.Errorf("emptying the inheritable set: %w", err)
	}
	for c := uintptr(0); ; c++ {
		bounded, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0)
		if err != nil {
			return nil // EINVAL: the kernel has no more
		}
		if bounded == 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return fmt.Errorf("taking capability %d from the bounding set: %w: the shim needs CAP_SETPCAP", c, err)
		}
	}
}
