package deviceplugin

import (
	"context"
	"slices"

	"github.com/vmlet/vmlet/internal/inotify"
)

// Kind is one kind of device, offered under one resource. Its methods are called
// by one goroutine, and not those of another kind.
type Kind interface {
	// Resource is what pods ask for: "devices.kubevirt.io/kvm".
	Resource() string
	// Find looks at the machine and returns the devices that there are: none, if
	// there is no such thing here. What is there and can't be used has an Obstacle.
	// It returns soon, and sooner when ctx ends.
	Find(ctx context.Context) []Device
	// Interests are the files and folders whose changes may change what Find
	// returns. It is asked again after each change.
	Interests() []inotify.Interest
}

// MaxID is how long a device's id may be, in bytes (the API's Device.ID).
const MaxID = 63

// Device is what a container can be given. It is not changed once it is made.
type Device struct {
	// ID is unique in its resource: 1 to MaxID bytes.
	ID string
	// Obstacle is why it can't be used now; empty: it can. The kubelet counts
	// such a device in a node's capacity, and doesn't give it away.
	Obstacle string
	// NUMANodes that it is near to, in ascending order; none: not told.
	NUMANodes []int
	// Near names what it shares with the devices that it is best had together
	// with: an IOMMU group, the device that it is a slice of. Empty: nothing.
	Near string
	// Grant is what a container that gets it is given.
	Grant *Grant
}

// Grant is what a container is given with a device. Paths are the host's, and
// the same in the container.
type Grant struct {
	// Nodes are device nodes, to be read and written.
	Nodes []string
	// Folders are mounted read-only. One that has a socket can still be connected to.
	Folders []string
	// Variable of the environment that has Value, joined by commas with that of
	// other devices.
	Variable, Value string
	// CDI are names of devices of the container device interface:
	// "vendor.com/class=name". The runtime then does what their description says.
	CDI []string
}

func (d Device) equal(other Device) bool {
	return d.ID == other.ID && d.Obstacle == other.Obstacle && d.Near == other.Near &&
		slices.Equal(d.NUMANodes, other.NUMANodes) && (d.Grant == other.Grant || d.Grant.equal(other.Grant))
}

// looksLike: the kubelet gets the same for both.
func (d Device) looksLike(other Device) bool {
	return d.ID == other.ID && (d.Obstacle == "") == (other.Obstacle == "") && slices.Equal(d.NUMANodes, other.NUMANodes)
}

func (g *Grant) equal(other *Grant) bool {
	return g != nil && other != nil && g.Variable == other.Variable && g.Value == other.Value &&
		slices.Equal(g.Nodes, other.Nodes) && slices.Equal(g.Folders, other.Folders) && slices.Equal(g.CDI, other.CDI)
}
