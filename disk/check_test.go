package disk

import (
	"errors"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	qcow2 := func(change func(*Header)) Info {
		h := &Header{Version: 3, VirtualSize: 1 << 20, ClusterSize: 65536}
		if change != nil {
			change(h)
		}
		return Info{Format: QCOW2, Header: h}
	}
	over := func(name, format string) Info {
		return qcow2(func(h *Header) { h.BackingFile, h.BackingFormat = name, format })
	}
	data := func(name string) Info {
		return qcow2(func(h *Header) { h.ExternalData, h.DataFile = true, name })
	}
	top := func(e Expectation) Expectation {
		e.Field, e.Path = "disks[1].path", "/vms/a/top.qcow2"
		if e.Format == "" {
			e.Format = QCOW2
		}
		return e
	}
	base := []Image{{"/vms/base.raw", Raw}}
	tests := []struct {
		name  string
		info  Info
		want  Expectation
		fault string // one that must be there; empty: none at all
	}{
		{"plain qcow2", qcow2(nil), Expectation{}, ""},
		{"plain raw", Info{Format: Raw}, Expectation{Image: Image{Format: Raw}}, ""},
		{"dirty is QEMU's to repair", qcow2(func(h *Header) { h.Dirty = true }), Expectation{}, ""},
		{"raw that a guest encrypted", Info{Format: LUKS}, Expectation{Image: Image{Format: Raw}}, ""},
		{"raw said, qcow2 found", qcow2(nil), Expectation{Image: Image{Format: Raw}}, "said to be raw and has the header of qcow2: say format: qcow2"},
		{"raw said, vmdk found", Info{Format: VMDK}, Expectation{Image: Image{Format: Raw}}, "the header of vmdk, which can't be given to a VM: convert it"},
		{"qcow2 said, raw found", Info{Format: Raw}, Expectation{}, "said to be qcow2 and has no such header"},
		{"qcow2 said, luks found", Info{Format: LUKS}, Expectation{}, "the header of luks"},
		{"vmdk said and found", Info{Format: VMDK}, Expectation{Image: Image{Format: VMDK}}, "raw or qcow2"},
		{"nothing said", Info{Format: Raw}, Expectation{Image: Image{Format: "probe"}}, "raw or qcow2"},
		{"raw with a backing file", Info{Format: Raw}, Expectation{Image: Image{Format: Raw}, Backing: base}, "no backing file"},
		{"corrupt", qcow2(func(h *Header) { h.Corrupt = true }), Expectation{}, "marked corrupt"},
		{"encrypted", qcow2(func(h *Header) { h.Encryption = "aes" }), Expectation{}, "encrypted (aes)"},
		{"unknown feature", qcow2(func(h *Header) { h.UnknownFeatures = 1 << 9 }), Expectation{}, "0x200"},

		{"backing not named", over("/etc/shadow", ""), Expectation{}, `"/etc/shadow"`},
		{"backing named", over("/vms/base.raw", "raw"), Expectation{Backing: base}, ""},
		{"backing named, no format in the header", over("/vms/base.raw", ""), Expectation{Backing: base}, ""},
		{"backing relative to the image", over("../base.raw", "raw"), Expectation{Backing: base}, ""},
		{"backing relative to another folder", over("base.raw", "raw"), Expectation{Backing: base}, `over "base.raw"`},
		{"another backing", over("/vms/other.raw", "raw"), Expectation{Backing: base}, `over "/vms/other.raw"`},
		{"another backing format", over("/vms/base.raw", "qcow2"), Expectation{Backing: base}, `"qcow2", and raw was named`},
		{"backing named, none there", qcow2(nil), Expectation{Backing: base}, "no backing file"},
		{"backing by protocol", over("file:../base.raw", "raw"), Expectation{Backing: base}, `over "file:`},
		{"backing by JSON", over(`json:{"driver":"nbd"}`, "raw"), Expectation{Backing: base}, `json:`},
		{"protocol under a name that matches", over("nbd:x", "raw"), Expectation{Backing: []Image{{"/vms/a/nbd:x", Raw}}}, `over "nbd:x"`},
		{"colon after a slash is no protocol", over("./nbd:x", "raw"), Expectation{Backing: []Image{{"/vms/a/nbd:x", Raw}}}, ""},

		{"data not named", data("/etc/shadow"), Expectation{}, `"/etc/shadow"`},
		{"data not named anywhere", data(""), Expectation{}, "wasn't named"},
		{"data named", data("d.raw"), Expectation{DataFile: "/vms/a/d.raw"}, ""},
		{"data named by us alone", data(""), Expectation{DataFile: "/vms/a/d.raw"}, ""},
		{"other data", data("e.raw"), Expectation{DataFile: "/vms/a/d.raw"}, `in "e.raw"`},
		{"data named, none there", qcow2(nil), Expectation{DataFile: "/vms/a/d.raw"}, "holds its own data"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := Check(tt.info, top(tt.want))
			if tt.fault == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			var f *Fault
			if !errors.As(err, &f) || f.Field != "disks[1].path" || f.Path != "/vms/a/top.qcow2" {
				t.Fatalf("error %v, want a Fault of the field and the path", err)
			}
			if !strings.Contains(err.Error(), tt.fault) {
				t.Errorf("%q doesn't say %q", err, tt.fault)
			}
		})
	}
}

func TestCheckTellsAll(t *testing.T) {
	h := &Header{Corrupt: true, Encryption: "luks", BackingFile: "a", ExternalData: true, DataFile: "b"}
	err := Check(Info{Format: QCOW2, Header: h}, Expectation{Field: "disks[0].path", Image: Image{"/i", QCOW2}})
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) != 4 {
		t.Errorf("%v, want four faults", err)
	}
}

func TestBelow(t *testing.T) {
	e := Expectation{Field: "f", Image: Image{"/t", QCOW2}, DataFile: "/d", Backing: []Image{{"/m", QCOW2}, {"/b", Raw}}}
	var got []string
	for ok := true; ok; e, ok = e.Below() {
		got = append(got, e.Field+e.Path+string(e.Format)+e.DataFile)
	}
	if s := strings.Join(got, " "); s != "f/tqcow2/d f/mqcow2 f/braw" {
		t.Error(s)
	}
}
