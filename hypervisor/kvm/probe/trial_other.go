//go:build !amd64

package probe

import (
	"context"

	"github.com/vmlet/vmlet/hypervisor"
)

// tryGuest on other architectures stops where the virtual machine could be made: the trial guest is x86 code.
func tryGuest(context.Context, int, int) hypervisor.Status {
	return hypervisor.Status{Level: hypervisor.Works}
}
