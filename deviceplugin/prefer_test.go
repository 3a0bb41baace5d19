package deviceplugin

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// machine makes devices of "id:nodes:near" and, if one can't be used, ":ill"; nodes
// as "0" or "0+1".
func machine(text string) *snapshot {
	var all []Device
	for field := range strings.FieldsSeq(text) {
		parts := strings.Split(field, ":")
		d := Device{ID: parts[0], Near: parts[2], Obstacle: strings.Join(parts[3:], ""), Grant: &Grant{}}
		for n := range strings.SplitSeq(parts[1], "+") {
			if n != "" {
				d.NUMANodes = append(d.NUMANodes, int(n[0]-'0'))
			}
		}
		all = append(all, d)
	}
	return newSnapshot(all)
}

func TestPrefer(t *testing.T) {
	two := "a1:0:x a2:0:y a3:0:x a10:0:y b1:1:z b2:1:z"
	for _, c := range []struct {
		name, machine, available, must string
		size                           int
		want                           string
	}{
		{"natural order", "kvm9::  kvm10:: kvm1::", "kvm10 kvm9 kvm1", "", 2, "kvm1 kvm9"},
		{"the node that just fits", two, "a1 a2 a3 a10 b1 b2", "", 2, "b1 b2"},
		{"the node that has enough", two, "a1 a2 a3 a10 b1 b2", "", 3, "a1 a2 a3"},
		{"neighbours within the node", two, "a1 a2 a3 a10 b1", "", 2, "a1 a3"},
		{"neighbours that are left", two, "a1 a2 a10 b1", "", 2, "a2 a10"},
		{"the node of what must be included", two, "a1 a2 a3 a10 b1 b2", "a2", 2, "a2 a10"},
		{"what must be included is apart", two, "a1 a2 a3 a10 b1 b2", "a1 b1", 3, "a1 b1 b2"},
		{"all of a node, then the next", two, "a1 a2 a3 a10 b1 b2", "", 5, "a1 a2 a3 a10 b1"},
		{"all", two, "a1 b1", "", 2, "a1 b1"},
		{"all must be", two, "a1 a2 a3 a10 b1 b2", "b2 a10", 2, "a10 b2"},
		{"devices without a node are last", "n1:: n2:: a1:0: ", "n1 n2 a1", "", 2, "a1 n1"},
		{"of two nodes at once", "c1:0+1: c2:0+1: a1:0: b1:1:", "c1 c2 a1 b1", "", 2, "c1 c2"},
		{"must is not among the available", two, "a1 a2", "a3", 2, "a3 a1"},
		{"must is said twice", two, "a1 a2 a3", "a1 a1", 1, "a1"},
		{"of equal nodes the first", "a1:1: a2:1: b1:0: b2:0:", "a1 a2 b1 b2", "", 2, "b1 b2"},
		{"what is left of nodes, without what must be", "a1:0: a2:0: a3:0: b1:1: b2:1:", "a1 a2 a3 b1 b2", "a1 a2 b1", 4, "a1 a2 b1 a3"},
		{"one that is ill is last", "a1:0::ill a2:0: b1:1:", "a1 a2 b1", "", 2, "a2 b1"},
		{"one that has gone is last", "a2:0: b1:1:", "a1 a2 b1", "", 2, "a2 b1"},
		{"one that is ill, if there is no other", "a1:0::ill a2:0: b1:1:", "a1 a2 b1", "", 3, "a1 a2 b1"},
		{"some that are ill", "a1:0::ill a2:0::ill b1:1:", "a1 a2 b1", "", 2, "a1 b1"},
		{"one that is ill must be", "a1:0::ill a2:0: b1:1:", "a1 a2 b1", "a1", 2, "a1 a2"},
		{"nothing", two, "a1", "", 0, ""},
	} {
		r := &api.ContainerPreferredAllocationRequest{
			AvailableDeviceIDs: strings.Fields(c.available), MustIncludeDeviceIDs: strings.Fields(c.must), AllocationSize: int32(c.size)}
		for range 10 {
			rand.Shuffle(len(r.AvailableDeviceIDs), func(i, j int) {
				r.AvailableDeviceIDs[i], r.AvailableDeviceIDs[j] = r.AvailableDeviceIDs[j], r.AvailableDeviceIDs[i]
			})
			asked := proto.CloneOf(r)
			got, err := allocator{}.prefer(machine(c.machine), r)
			if !proto.Equal(r, asked) {
				t.Errorf("%s: the question was changed: %v", c.name, r)
			}
			if err != nil || strings.Join(got, " ") != c.want {
				t.Errorf("%s: %q, want %q (%v)", c.name, got, c.want, err)
				break
			}
		}
	}
	for _, r := range []*api.ContainerPreferredAllocationRequest{
		{AvailableDeviceIDs: []string{"a1"}, AllocationSize: 2},
		{AvailableDeviceIDs: []string{"a1", "a2"}, MustIncludeDeviceIDs: []string{"a1", "a2"}, AllocationSize: 1},
		{AvailableDeviceIDs: []string{"a1"}, AllocationSize: -1},
	} {
		if _, err := (allocator{}).prefer(machine(two), r); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", r, err)
		}
	}
}

func TestNatural(t *testing.T) {
	ascending := []string{
		"", "0", "01", "1", "01x", "1x", "2", "9", "010", "10", "11", "12", "100",
		"a", "a01b2", "a1b2", "a1b10", "aa", "kvm", "kvm1", "kvm9", "kvm10", "kvm10a", "kvm18446744073709551615", "kvm18446744073709551616",
	}
	for i, a := range ascending {
		for j, b := range ascending {
			if got, want := natural(a, b), cmp.Compare(i, j); got != want {
				t.Errorf("%q and %q: %d, want %d", a, b, got, want)
			}
		}
	}
}

// FuzzPrefer: whatever is asked, the answer has the size, is of what is
// available, has what it must, and doesn't hang on the order of the question.
func FuzzPrefer(f *testing.F) {
	f.Add(uint64(1), 12, 3, 1)
	f.Fuzz(func(t *testing.T, seed uint64, count, size, must int) {
		if count < 0 || count > 64 {
			return
		}
		r := rand.New(rand.NewPCG(seed, 0))
		var all []Device
		var ids []string
		for i := range count {
			d := Device{ID: fmt.Sprintf("d%d", i), Near: fmt.Sprint(r.IntN(4)), Grant: &Grant{}}
			if n := r.IntN(4); n < 3 {
				d.NUMANodes = []int{n}
			}
			if r.IntN(8) == 0 {
				d.Obstacle = "ill"
			}
			if r.IntN(8) != 0 { // else it has gone
				all = append(all, d)
			}
			ids = append(ids, d.ID)
		}
		now := newSnapshot(all)
		q := &api.ContainerPreferredAllocationRequest{AvailableDeviceIDs: ids, AllocationSize: int32(size)}
		if must > 0 && must <= count {
			q.MustIncludeDeviceIDs = slices.Clone(ids[count-must:])
		}
		got, err := allocator{}.prefer(now, q)
		if possible := size >= len(q.MustIncludeDeviceIDs) && size <= count; (err == nil) != possible {
			t.Fatalf("%v: %v", q, err)
		}
		if err != nil {
			return
		}
		if len(got) != size || len(distinct(got)) != size {
			t.Fatalf("%d of %d: %q", len(got), size, got)
		}
		for _, id := range q.MustIncludeDeviceIDs {
			if !slices.Contains(got, id) {
				t.Fatalf("%s is missing in %q", id, got)
			}
		}
		for _, id := range got {
			if !slices.Contains(ids, id) {
				t.Fatalf("%s was not available", id)
			}
		}
		slices.Reverse(q.AvailableDeviceIDs)
		if again, _ := (allocator{}).prefer(now, q); !slices.Equal(got, again) {
			t.Fatalf("%q, then %q", got, again)
		}
	})
}
