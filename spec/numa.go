package spec

import (
	"fmt"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/sysfs/notation"
)

// defaultDistance is how far nodes are from one another if nothing is said:
// REMOTE_DISTANCE of linux/topology.h, and what QEMU and cloud-hypervisor take.
const defaultDistance = 20

// localDistance is a node's to itself.
const localDistance = 10

// idList is the part of Linux's notation that fields take: without steps.
var idList = pattern(`^[0-9]{1,6}(-[0-9]{1,6})?(,[0-9]{1,6}(-[0-9]{1,6})?)*$`)

// ParseIDs reads a list of CPUs or nodes as a specification has it: "0-3,8". The
// empty one is none.
func ParseIDs(text string) (notation.IDList, error) {
	if len(text) > maxIDList || text != "" && !idList().MatchString(text) {
		return nil, fmt.Errorf("%.80q is not a list of numbers: want one such as 0-3,8, of at most %d characters", text, maxIDList)
	}
	return notation.ParseIDList(text)
}

// NUMADistances returns how far each node, the first index, is from each other one.
// Where the way from one to another is not set, it is as long as the way
// back. Nil: no distance is set. The specification must be valid.
func NUMADistances(n *specv1.NUMA) [][]uint8 {
	nodes := n.GetNodes()
	said := false
	out := make([][]uint8, len(nodes))
	for i := range out {
		out[i] = make([]uint8, len(nodes))
	}
	for i, node := range nodes {
		for _, d := range node.GetDistances() {
			out[i][d.GetNode()], said = uint8(d.GetValue()), true
		}
	}
	if !said {
		return nil
	}
	for i := range out {
		for j := range out {
			switch {
			case i == j:
				out[i][j] = localDistance
			case out[i][j] != 0:
			case out[j][i] != 0:
				out[i][j] = out[j][i]
			default:
				// Both ways, so that the way back finds it.
				out[i][j] = defaultDistance
			}
		}
	}
	return out
}
