package spec

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
)

// disks are so many more on virtio.
func disks(name string, n int) (list string) {
	for i := range n {
		list += fmt.Sprintf(", {path: /%s%d}", name, i)
	}
	return list
}

// TestSlots completes lists of which some have slots.
func TestSlots(t *testing.T) {
	for _, test := range []struct{ disks, want string }{
		{"{path: /a}, {path: /b}", "none none"},
		{"{path: /a}, {path: /b, slot: 0}", "1 0"},
		{"{path: /a, slot: 64}, {path: /b}, {path: /c}", "64 1 2"},
		{"{path: /a, slot: 1}, {path: /b}, {path: /c, slot: 0}, {path: /d}", "1 2 0 3"},
		{"{path: /a, type: cdrom, bus: sata}, {path: /b}", "none none"},
		{"{path: /a, type: cdrom, bus: sata}" + disks("b", 7), strings.TrimSpace(strings.Repeat("none ", 8))},
		{"{path: /a, type: cdrom, bus: sata}" + disks("b", 4) + ", {path: /c, bus: scsi}" + disks("d", 4), "8 0 1 2 3 9 4 5 6 7"},
		{"{path: /a, type: cdrom, bus: sata, slot: 9}" + disks("b", 8), "9 1 2 3 4 5 6 7 8"},
	} {
		s := parse(t, "name: a\ndisks: ["+test.disks+"]\n")
		once := Default(s, Target{ID: "x", Hypervisor: "kvm", VMM: VMMQEMU, Arch: ArchAMD64}, BaseLayers())
		got := ""
		for i, d := range once.Disks {
			slot := "none"
			if d.Slot != nil {
				slot = fmt.Sprint(d.GetSlot())
			}
			if i > 0 {
				slot = " " + slot
			}
			got += slot
		}
		if got != test.want {
			t.Errorf("%s: slots %q, want %q", test.disks, got, test.want)
		}
		if twice := Default(once, Target{ID: "x"}, nil); !proto.Equal(once, twice) {
			t.Errorf("%s: completing it again changes it", test.disks)
		}
		if err := Validate(once).Err(); err != nil {
			t.Error(err)
		}
	}
}

// TestFixSlots takes a disk out of the middle: the others stay.
func TestFixSlots(t *testing.T) {
	s := parse(t, "name: a\ndisks: [{path: /a}, {path: /b}, {path: /c}]\nnetworks: [{user: {}}]\n")
	FixSlots(s)
	s.Disks = append(s.Disks[:1], s.Disks[2:]...)
	if got := []int{Slot(s.Disks, 0), Slot(s.Disks, 1), Slot(s.Networks, 0)}; got[0] != 0 || got[1] != 2 || got[2] != 0 {
		t.Errorf("slots %v", got)
	}
	if slot, free := FreeSlot(s.Disks, 0, 3); slot != 1 || !free {
		t.Errorf("the free slot is %d, %v", slot, free)
	}
	if _, free := FreeSlot(s.Disks, 2, 2); free {
		t.Error("slot 2 is free")
	}
}

func TestSlotsAndTargetRefused(t *testing.T) {
	for _, test := range []struct{ yaml, field string }{
		{"disks: [{path: /a, slot: 3}, {path: /b, slot: 3}]", "disks[1].slot"},
		{"disks: [{path: /a, slot: 128}]", "disks[0].slot"},
		{"networks: [{user: {}, slot: 1}, {user: {}, slot: 1}]", "networks[1].slot"},
		{"memory: {size: 1Gi, target: 2Gi}", "memory.target"},
		{"memory: {size: 1Gi, target: lots}", "memory.target"},
		{"memory: {size: 1Gi, target: 1000}", "memory.target"},
		{"memory: {size: 1Gi, target: 512Mi}\ndevices: {balloon: false}", "memory.target"},
	} {
		faults := Validate(parse(t, "name: a\n"+test.yaml+"\n"))
		if len(faults) != 1 || faults[0].Field != test.field {
			t.Errorf("%s: %v, want a fault in %s", test.yaml, faults, test.field)
		}
	}
	if faults := Validate(parse(t, "name: a\nmemory: {size: 1Gi, target: 512Mi}\n")); faults != nil {
		t.Error(faults)
	}
}
