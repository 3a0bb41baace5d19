package contract

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// TestErrorf: arguments that are parts of a fault stay parts, whatever is around them; the sentence has all of it.
func TestErrorf(t *testing.T) {
	inUse := Errorf("%s: another process has it open: end that first%s", ObjectName("/d"), Advice("fuser -v /d names it"))
	noFile := &fs.PathError{Op: "open", Path: "/var/x", Err: unix.ENOENT}
	fields := Several{{Field: "cpu.model", Text: "no avx512"}, {Field: "memory", Text: "too much"}}
	one := Several{{Field: "cpu.model", Text: "no avx512"}}
	for name, c := range map[string]struct {
		err      error
		sentence string
		want     []Fault
	}{
		"nothing":      {nil, "", nil},
		"a text":       {errors.New("no KVM"), "no KVM", []Fault{{Text: "no KVM"}}},
		"a code":       {fmt.Errorf("open it: %w", unix.EIO), "open it: input/output error", []Fault{{Text: "open it: input/output error"}}},
		"object":       {inUse, "/d: another process has it open: end that first (fuser -v /d names it)", []Fault{{Object: "/d", Text: "/d: another process has it open: end that first", Advice: "fuser -v /d names it"}}},
		"text around":  {fmt.Errorf("disk 1: %w, saying: no", inUse), "disk 1: /d: another process has it open: end that first (fuser -v /d names it), saying: no", []Fault{{Object: "/d", Text: "disk 1: /d: another process has it open: end that first, saying: no", Advice: "fuser -v /d names it"}}},
		"parts around": {Errorf("%w: or boot%s", inUse, Advice("vmlet start")), "/d: another process has it open: end that first (fuser -v /d names it): or boot (vmlet start)", []Fault{{Object: "/d", Text: "/d: another process has it open: end that first: or boot", Advice: "fuser -v /d names it; vmlet start"}}},
		"this VM":      {Errorf("%s is paused", ThisVM("a/p")), "vm a/p is paused", []Fault{{Text: "the VM is paused"}}},
		"of this VM":   {Errorf("%s: %w", ThisVM("a/p"), inUse), "vm a/p: " + inUse.Error(), FaultsOf(inUse)},
		"another VM":   {Errorf("%s: has it, as has %s%s", ThisVM("a"), OtherVM("b"), Reason("R")), "vm a: has it, as has vm b", []Fault{{Reason: "R", OtherVM: "b", Text: "has it, as has vm b"}}},
		"fields":       {Errorf("too much: see %s", FieldName("memory.size")), "too much: see memory.size", []Fault{{Text: "too much: see memory.size", Fields: []string{"memory.size"}}}},
		"a file":       {fmt.Errorf("the image: %w", noFile), "the image: open /var/x: no such file or directory", []Fault{{Object: "/var/x", Text: "the image: open /var/x: no such file or directory"}}},
		"no object":    {&fs.PathError{Op: "open", Path: "x", Err: unix.ENOENT}, "open x: no such file or directory", []Fault{{Text: "open x: no such file or directory"}}},
		"a link":       {&os.LinkError{Op: "rename", Old: "/a", New: "/b", Err: unix.EIO}, "rename /a /b: input/output error", []Fault{{Object: "/a", Text: "rename /a /b: input/output error"}}},
		"of fields":    {fmt.Errorf("start failed: %w: again", fields), "start failed: cpu.model, memory: again", []Fault{{Field: "cpu.model", Text: "no avx512"}, {Field: "memory", Text: "too much: again"}}},
		"of one field": {Errorf("%s: %w", ThisVM("a"), one), "vm a: cpu.model", one},
		"joined":       {errors.Join(one, unix.EIO), "cpu.model\ninput/output error", []Fault{one[0], {Text: "input/output error"}}},
		"two quoted":   {fmt.Errorf("%w: %w", unix.EIO, inUse), "input/output error: " + inUse.Error(), []Fault{{Object: "/d", Text: "input/output error: /d: another process has it open: end that first", Advice: "fuser -v /d names it"}}},
		"two texts":    {fmt.Errorf("%w: %w", unix.EIO, unix.EPERM), "input/output error: operation not permitted", []Fault{{Text: "input/output error: operation not permitted"}}},
	} {
		if c.err != nil && c.err.Error() != c.sentence {
			t.Errorf("%s: the sentence is %q, want %q", name, c.err, c.sentence)
		}
		if got := FaultsOf(c.err); !reflect.DeepEqual(got, []Fault(c.want)) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	if err := Errorf("x: %w", unix.EIO); !errors.Is(err, unix.EIO) {
		t.Errorf("%v wraps nothing", err)
	}
}

// TestBoundFaults: a list and its texts have bounds, and are text.
func TestBoundFaults(t *testing.T) {
	long := strings.Repeat("ü", maxFaultText)
	var all []Fault
	for range 2 * maxFaults {
		all = append(all, Fault{Text: "x" + long, Field: "\xff", Fields: strings.Split(long, "")})
	}
	got := BoundFaults(all)
	if len(got) != maxFaults {
		t.Errorf("%d faults, want %d", len(got), maxFaults)
	}
	if text := got[0].Text; len(text) > maxFaultText {
		t.Errorf("a text has %d bytes, want %d", len(text), maxFaultText)
	}
	if text := got[0].Text; !utf8.ValidString(text) {
		t.Errorf("%q is no text", text)
	}
	if got[0].Field != "" {
		t.Errorf("field %q, want none", got[0].Field)
	}
	if n := len(got[0].Fields); n != maxFaultFields {
		t.Errorf("%d fields, want %d", n, maxFaultFields)
	}
}

// Several are faults that are one error.
type Several []Fault

func (s Several) Error() (text string) {
	for i, f := range s {
		if i > 0 {
			text += ", "
		}
		text += f.Field
	}
	return text
}

func (s Several) Faults() []Fault { return s }
