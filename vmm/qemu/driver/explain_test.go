package driver_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/vmm/qemu/driver"
)

// TestExplain: what QEMU says of a descriptor is said of the field and the file.
func TestExplain(t *testing.T) {
	t.Parallel()
	p := &plan.Plan{Files: []plan.File{
		{Kind: plan.FileListen, Path: "qmp.sock"}, // 3
		{Kind: plan.FilePath, Field: "boot.kernel.path", Path: "/srv/vmlinuz"},
		{Kind: plan.FilePath, Field: "boot.kernel.initrd", Path: "/srv/initrd"},
		{Kind: plan.FileReceived, Field: "networks[0].tap"},
		{}, {}, {},
		{Kind: plan.FilePath, Field: "disks[0].path", Path: "/srv/a.qcow2"}, // 10
		{}, {},
		{Kind: plan.FilePath, Field: "disks[1].path", Path: "/srv/b.raw"}, // 13
	}}
	lock := func(kind, set string) string {
		return `qemu-system-x86_64: -blockdev {"node-name":"d"}: Failed to get ` + kind + ` lock` + "\nIs another process using the image [/dev/fdset/" + set + "]?"
	}
	for _, tc := range []struct {
		name, words, says string
		code              shim.Code
		fault             string // its beginning; empty: none
	}{
		{"a lock", lock(`"write"`, "10"), "using the image [/srv/a.qcow2]?", shim.CodePrecondition, "disks[0].path: /srv/a.qcow2: another process has it open"},
		{"a shared lock", lock(`shared "write"`, "13"), "using the image [/srv/b.raw]?", shim.CodePrecondition, "disks[1].path: /srv/b.raw: another process"},
		{"no such file", lock(`"write"`, "99"), "[/dev/fdset/99]", "", ""},
		{"no number", lock(`"write"`, ""), "[/dev/fdset/]", "", ""},
		{"less than nothing", lock(`"write"`, "-5"), "[/dev/fdset/-5]", "", ""},
		{"7.2's kernel", "qemu: invalid kernel header", "qemu: invalid kernel header", shim.CodeInvalid, "boot.kernel.path: /srv/vmlinuz: QEMU can't boot it: want a bzImage"},
		{"an ELF file", "Error loading uncompressed kernel without PVH ELF Note", "PVH", shim.CodeInvalid, "boot.kernel.path: /srv/vmlinuz: QEMU can't boot it"},
		{"by descriptor", "qemu: could not load kernel '/proc/self/fd/4': Is a directory", "'/srv/vmlinuz'", shim.CodeInvalid, "boot.kernel.path: /srv/vmlinuz"},
		{"initrd", "qemu: initrd is too large, cannot support.(max: 66945023, need 100000000)", "need 100000000", shim.CodeInvalid, "boot.kernel.initrd: /srv/initrd: does it fit"},
		{"a port", "-netdev {}: Could not set up host forwarding rule 'tcp:127.0.0.1:2222-:22'", "rule", shim.CodePrecondition, "networks: port tcp:127.0.0.1:2222 of the node can't be listened on: another program"},
		{"a port without a rule", "Could not set up host forwarding rule", "rule", shim.CodePrecondition, "networks: port  of the node"},
		{"a file without a path", "can't use /dev/fdset/6", "can't use /dev/fdset/6", "", ""},
		{"the rest of a number", "/dev/fdset/101", "/dev/fdset/101", "", ""},
		{"several", "/proc/self/fd/4, /dev/fd/5 and /dev/fdset/13", "/srv/vmlinuz, /srv/initrd and /srv/b.raw", "", ""},
		{"QEMU's arguments", `qemu-system-x86_64: -device {"a":{"b":[1]},"c":"d: e"}: no such bus` + "\nqemu-system-x86_64: -m 64M: no memory", "qemu-system-x86_64: no such bus\nqemu-system-x86_64: no memory", "", ""},
		{"no program of QEMU's", "a program qemu: -m 64M: no memory", "a program qemu: -m 64M: no memory", "", ""},
		{"no value", "qemu-system-x86_64: -S is set: twice", "qemu-system-x86_64: -S is set: twice", "", ""},
		{"two values", "qemu-system-x86_64: -m 64M and more: no", "qemu-system-x86_64: -m 64M and more: no", "", ""},
		{"an argument without an end", `qemu-system-x86_64: -device {"a": 1`, `-device {"a": 1`, "", ""},
		{"anything else", "out of luck", "out of luck", "", ""},
	} {
		words, fault := driver.QEMU{}.Explain(p, tc.words)
		if !strings.Contains(words, tc.says) {
			t.Errorf("%s: %q, want %q", tc.name, words, tc.says)
		}
		switch {
		case (fault == nil) != (tc.fault == ""):
			t.Errorf("%s: fault %v, want %q", tc.name, fault, tc.fault)
		case fault != nil && (fault.Code != tc.code || !strings.HasPrefix(fault.Error(), tc.fault)):
			t.Errorf("%s: %s %v, want %s %s", tc.name, fault.Code, fault, tc.code, tc.fault)
		}
	}
	if _, fault := (driver.QEMU{}).Explain(&plan.Plan{}, "invalid kernel header"); fault != nil {
		t.Errorf("without a kernel: %v", fault)
	}
}

// TestExplainInParts: the file and the other field are told apart from the text, and the advice.
func TestExplainInParts(t *testing.T) {
	p := &plan.Plan{Files: []plan.File{
		{Kind: plan.FilePath, Field: "disks[0].path", Path: "/srv/a.qcow2"}, // 3
		{Kind: plan.FilePath, Field: "boot.kernel.initrd", Path: "/srv/initrd"},
	}}
	for words, want := range map[string]contract.Fault{
		`Failed to get "write" lock` + "\nIs another process using the image [/dev/fdset/3]?": {
			Field: "disks[0].path", Object: "/srv/a.qcow2", Text: "/srv/a.qcow2: another process has it open, most likely another VM: end that first",
			Advice: "fuser -v /srv/a.qcow2 names it",
		},
		"initrd is too large": {
			Field: "boot.kernel.initrd", Object: "/srv/initrd", Text: "/srv/initrd: does it fit into the guest's memory? memory.size says how much that is",
			Fields: []string{"memory.size"},
		},
	} {
		_, fault := driver.QEMU{}.Explain(p, words)
		if got := contract.FaultsOf(fault); !reflect.DeepEqual(got, []contract.Fault{want}) {
			t.Errorf("%q: %+v, want %+v", words, got, want)
		}
	}
}
