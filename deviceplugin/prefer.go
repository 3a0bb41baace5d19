package deviceplugin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// prefer chooses devices for one container: all that must be included, and of
// the others those that leave the fewest NUMA nodes among them, and then the
// fewest neighbourhoods (Device.Near). The same question has the same answer.
func (a allocator) prefer(now *snapshot, r *api.ContainerPreferredAllocationRequest) ([]string, error) {
	size := int(r.GetAllocationSize())
	must := distinct(r.GetMustIncludeDeviceIDs())
	available := distinct(slices.Concat(r.GetAvailableDeviceIDs(), must))
	if size < len(must) || size > len(available) {
		return nil, status.Errorf(codes.InvalidArgument, "%s: %d devices are asked for of %d, and %d must be among them",
			a.resource, size, len(available), len(must))
	}
	included := make(map[string]bool, len(must))
	for _, id := range must {
		included[id] = true
	}
	// Those that have gone or broken since the kubelet asked are the last choice.
	var candidates, last []candidate
	for _, id := range available {
		c := candidate{id: id, must: included[id]}
		d := now.byID[id]
		if d != nil {
			c.keys = [keys]string{nodeKey(d.NUMANodes), d.Near}
		}
		if c.must || d != nil && d.Obstacle == "" {
			candidates = append(candidates, c)
		} else {
			last = append(last, c)
		}
	}
	candidates = append(candidates, last[:max(0, size-len(candidates))]...) // size is not more than all
	chosen := pack(candidates, size, 0)
	ids := make([]string, 0, size)
	for _, c := range chosen {
		ids = append(ids, c.id)
	}
	return ids, nil
}

// candidate is a device that may be chosen, and what it belongs to, from the
// most important down.
type candidate struct {
	id   string
	must bool
	keys [keys]string
}

// keys is how many levels candidates are packed by.
const keys = 2

func nodeKey(nodes []int) string {
	if len(nodes) == 0 {
		return ""
	}
	return fmt.Sprint(nodes)
}

// pack chooses size candidates, or all if there are no more: out of as few of
// this level's groups as it can, and so on down within each.
func pack(candidates []candidate, size, level int) []candidate {
	if size >= len(candidates) || level == keys {
		slices.SortFunc(candidates, compareCandidates)
		return candidates[:min(size, len(candidates))]
	}
	groups := group(candidates, level)
	// What must be included comes first, wherever it is: so much less is left
	// to choose freely.
	left := size
	for i := range groups {
		left -= groups[i].must
	}
	var chosen []candidate
	for len(groups) > 0 && left >= 0 {
		i := best(groups, left)
		g := groups[i]
		groups = slices.Delete(groups, i, i+1)
		take := min(len(g.members), g.must+left)
		left -= take - g.must
		if take > 0 {
			chosen = append(chosen, pack(g.members, take, level+1)...)
		}
	}
	slices.SortFunc(chosen, compareCandidates)
	return chosen
}

// keyed are the candidates of one group.
type keyed struct {
	key     string
	must    int
	members []candidate
}

func (k keyed) free() int { return len(k.members) - k.must }

// group returns the groups of a level, sorted by key.
func group(candidates []candidate, level int) []keyed {
	var groups []keyed
	at := make(map[string]int)
	for _, c := range candidates {
		i, known := at[c.keys[level]]
		if !known {
			i = len(groups)
			at[c.keys[level]] = i
			groups = append(groups, keyed{key: c.keys[level]})
		}
		groups[i].members = append(groups[i].members, c)
		if c.must {
			groups[i].must++
		}
	}
	slices.SortFunc(groups, func(a, b keyed) int { return natural(a.key, b.key) })
	return groups
}

// best is the group to take from next. One that must be used anyway goes before
// others, then one that has enough and the least beyond that, then the one with
// the most. Devices without a known node are taken last.
func best(groups []keyed, left int) int {
	rank := func(k keyed) [4]int {
		r := [4]int{1, 1, 1, -k.free()}
		if k.must > 0 {
			r[0] = 0
		}
		if k.key != "" {
			r[1] = 0
		}
		if k.free() >= left {
			r[2], r[3] = 0, k.free()
		}
		return r
	}
	chosen := 0
	for i := range groups {
		a, b := rank(groups[i]), rank(groups[chosen])
		if slices.Compare(a[:], b[:]) < 0 {
			chosen = i
		}
	}
	return chosen
}

func compareCandidates(a, b candidate) int {
	if a.must != b.must {
		if a.must {
			return -1
		}
		return 1
	}
	return natural(a.id, b.id)
}

// natural compares with numbers by their value: kvm9 is before kvm10.
func natural(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		dx, dy := digits(x), digits(y)
		if dx == 0 || dy == 0 {
			if x[0] != y[0] {
				return cmp.Compare(x[0], y[0])
			}
			x, y = x[1:], y[1:]
			continue
		}
		nx, ny := strings.TrimLeft(x[:dx], "0"), strings.TrimLeft(y[:dy], "0")
		if c := cmp.Or(cmp.Compare(len(nx), len(ny)), strings.Compare(nx, ny)); c != 0 {
			return c
		}
		x, y = x[dx:], y[dy:]
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(a, b))
}

// digits is how many the text begins with.
func digits(text string) int {
	n := 0
	for n < len(text) && text[n] >= '0' && text[n] <= '9' {
		n++
	}
	return n
}

func distinct(ids []string) []string {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	return slices.Compact(ids)
}
