package spec

import (
	"errors"
	"strings"
	"testing"

	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"google.golang.org/protobuf/proto"
)

func TestParse(t *testing.T) {
	for name, text := range map[string]string{
		"YAML": `
name: web-1
labels: {app: "on", example.com/x: 1.0}
cpu: {cores: 2, features: [{name: avx2}]}
memory: {size: 1024}
disks:
- path: /images/a.img   # comment
  readOnly: true
networks: [{tap: {device: "0x10"}}]
devices: {balloon: false}
stopGracePeriod: 90s
`,
		"JSON": `{"name":"web-1","labels":{"app":"on","example.com/x":"1.0"},"cpu":{"cores":2,"features":[{"name":"avx2"}]},
"memory":{"size":"1024"},"disks":[{"path":"/images/a.img","readOnly":true}],"networks":[{"tap":{"device":"0x10"}}],
"devices":{"balloon":false},"stopGracePeriod":"90s"}`,
		"other spelling": `
name: web-1
labels: {app: on, example.com/x: 1.0}
cpu: {cores: 2, features: [{name: avx2}], model: null}
memory: {size: "1024"}
disks: [{path: /images/a.img, read_only: true, serial: }]
networks: [{tap: {device: 0x10}}]
devices: {balloon: false}
stop_grace_period: 1m30s
`,
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Parse([]byte(text), "f")
			if err != nil {
				t.Fatal(err)
			}
			want := &specv1.VirtualMachineSpec{
				Name: "web-1", Labels: map[string]string{"app": "on", "example.com/x": "1.0"},
				Cpu:    &specv1.CPU{Cores: 2, Features: []*specv1.CPUFeature{{Name: "avx2"}}},
				Memory: &specv1.Memory{Size: "1024"},
				Disks:  []*specv1.Disk{{Path: "/images/a.img", ReadOnly: true}},
				Networks: []*specv1.NetworkInterface{{Backend: &specv1.NetworkInterface_Tap{
					Tap: &specv1.TapNetwork{Device: "0x10"}}}},
				Devices:         &specv1.Devices{Balloon: proto.Bool(false)},
				StopGracePeriod: s.GetStopGracePeriod(),
			}
			if !proto.Equal(s, want) || s.GetStopGracePeriod().GetSeconds() != 90 {
				t.Errorf("read %v, want %v", s, want)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct {
		name, text string
		line       int
		want       string
	}{
		{"empty", "", 0, "empty"},
		{"only a comment", "# nothing\n", 0, "empty"},
		{"not a mapping", "- name: a\n", 1, "list where fields"},
		{"unknown field", "name: a\ndisks:\n- path: /a\n  sise: 1\n", 4, "disks[0].sise: no such field"},
		{"unknown at the top", "nam: a\n", 1, "nam: no such field: there are boot, clock, cloudInit"},
		{"twice", "name: a\nname: b\n", 2, "name: is listed twice"},
		{"twice in two spellings", "stopGracePeriod: 1s\nstop_grace_period: 2s\n", 2, "twice"},
		{"a label twice", "labels:\n  a: b\n  a: c\n", 3, "labels[a]: is listed twice"},
		{"two documents", "name: a\n---\nname: b\n", 2, "second document"},
		{"both backends", "networks:\n- user: {}\n  tap: {}\n", 3, "networks[0].tap: can't be beside user"},
		{"text for a number", "cpu: {cores: two}\n", 1, `cpu.cores: "two" where a whole number`},
		{"negative", "cpu: {cores: -1}\n", 1, "whole number"},
		{"half a second", "clock: {offsetSeconds: 0.5}\n", 1, `clock.offsetSeconds: "0.5" where a whole number`},
		{"too large", "cpu: {cores: 4294967296}\n", 1, "whole number"},
		{"quoted number", "cpu: {cores: '2'}\n", 1, "whole number"},
		{"text for a switch", "devices: {console: yes}\n", 1, `"yes" where true or false`},
		{"a list for text", "name: [a]\n", 1, "name: a list where text"},
		{"text for a list", "disks: /a\n", 1, "where a list is wanted"},
		{"nothing in a list", "disks:\n- \n", 2, "disks[0]: nothing where fields"},
		{"alias", "name: &a x\nhypervisor: *a\n", 2, "aliases"},
		{"merge", "cpu: &a {cores: 1}\n<<: *a\n", 2, "where a field's name"},
		{"a bad duration", "name: a\nstopGracePeriod: soon\n", 2, "stopGracePeriod: \"soon\" is not a duration"},
		{"a duration without a unit", "stopGracePeriod: 30\n", 1, "want a number with s, m or h"},
		{"bad YAML", "name: [\n", 0, ""},
		{"too long", strings.Repeat("#", MaxSize+1), 0, "at most"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse([]byte(c.text), "vm.yaml")
			var syntax *SyntaxError
			if !errors.As(err, &syntax) {
				t.Fatalf("error %v, want a SyntaxError", err)
			}
			if c.line != 0 && syntax.Line != c.line || !strings.Contains(syntax.Message, c.want) || !strings.HasPrefix(err.Error(), "vm.yaml:") {
				t.Errorf("error %v, want line %d and %q", err, c.line, c.want)
			}
		})
	}
}

// TestParseTellsAll: every fault of a file at once, but no more than people read.
func TestParseTellsAll(t *testing.T) {
	_, err := Parse([]byte("name: web-1\nmemory:\n  siez: 1Gi\n  hugePages: [a]\ncpu: {cores: two, cores: 3}\nnetworks:\n- tap: {brigde: br0}\n  user: {}\nlabels: {a: [], b: {}}\n"), "vm.yaml")
	lines, wants := strings.Split(err.Error(), "\n"), []string{
		"vm.yaml:3: memory.siez: no such field", "vm.yaml:4: memory.hugePages: a list", `vm.yaml:5: cpu.cores: "two"`, "vm.yaml:5: cpu.cores: is listed twice",
		"vm.yaml:7: networks[0].tap.brigde: no such field", "vm.yaml:8: networks[0].user: can't be beside tap", "vm.yaml:9: labels[a]: a list", "vm.yaml:9: labels[b]: a mapping",
	}
	if len(lines) != len(wants) {
		t.Fatalf("%d lines, want %d: %v", len(lines), len(wants), err)
	}
	for i, want := range wants {
		if !strings.HasPrefix(lines[i], want) {
			t.Errorf("line %d is %q, want %q", i+1, lines[i], want)
		}
	}
	for _, flood := range []string{strings.Repeat("a: b\n", 1000), "disks: [" + strings.Repeat("a,", maxNodes+2) + "]", strings.Repeat("x", MaxSize-3) + ": 1"} {
		_, err := Parse([]byte(flood), "f")
		if lines := strings.Count(err.Error(), "\n") + 1; lines > maxFaults+1 || len(err.Error()) > 1000*lines {
			t.Errorf("an error of %d lines, %d bytes", lines, len(err.Error()))
		}
	}
}

func TestMarshal(t *testing.T) {
	s := complete(t, full)
	for range 20 { // protojson varies its white space from build to build, maps their order
		yaml, err := Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		json, err := MarshalJSON(s)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range [][]byte{yaml, json} {
			back, err := Parse(text, "f")
			if err != nil {
				t.Fatal(err)
			}
			if !proto.Equal(back, s) {
				t.Fatalf("read back %v, want %v", back, s)
			}
		}
		again, err := Marshal(proto.Clone(s).(*specv1.VirtualMachineSpec))
		if err != nil || string(again) != string(yaml) {
			t.Fatalf("two writings differ (%v)", err)
		}
		if !strings.Contains(string(yaml), "\nstopGracePeriod: 30s\n") || strings.ContainsAny(string(json), "\n") {
			t.Fatalf("YAML:\n%s\nJSON: %s", yaml, json)
		}
	}
}

func TestQuantity(t *testing.T) {
	for text, want := range map[string]uint64{
		"0": 0, "1": 1, "1048576": 1 << 20, "512Mi": 512 << 20, "1.5Gi": 3 << 29, "4G": 4e9, "1k": 1000, "1K": 1000,
		"2Ki": 2048, "1Ti": 1 << 40, "0.5Ki": 512, ".5Ki": 512, "1.Ki": 1024, "8191Pi": 8191 << 50,
		"3M": 3e6, "3T": 3e12, "3P": 3e15,
	} {
		if got, err := ParseQuantity(text); err != nil || got != want {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "Mi", "-1", "+1", "1e3", "1 Mi", "1mi", "1MiB", "1Mii", "0.3", "0x10", "1_000", "1/2", "NaN", "8192Pi", "99999999999999999999",
		"1.2.3", ".", strings.Repeat("1", 40), "١",
	} {
		if got, err := ParseQuantity(text); err == nil {
			t.Errorf("%q is %d, want an error", text, got)
		}
	}
	for bytes, want := range map[uint64]string{0: "0", 1: "1", 1 << 10: "1Ki", 512 << 20: "512Mi", 3 << 29: "1536Mi", 1 << 60: "1024Pi"} {
		if got := FormatQuantity(bytes); got != want {
			t.Errorf("%d is %q, want %q", bytes, got, want)
		}
	}
}

func TestShortQuantity(t *testing.T) {
	for bytes, want := range map[uint64]string{
		0: "0Mi", 512 << 20: "512Mi", 1<<30 - 1: "1023Mi", 1 << 30: "1Gi", 24684096 << 10: "23.5Gi", 24<<30 - 1: "23.9Gi", 1<<64 - 1: "17179869183.9Gi",
	} {
		if got := ShortQuantity(bytes); got != want {
			t.Errorf("%d bytes are %q, want %q", bytes, got, want)
		}
	}
}
