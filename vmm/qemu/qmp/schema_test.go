package qmp_test

import (
	"encoding/json"
	"testing"

	"github.com/vmlet/vmlet/vmm/qemu/qmp"
	"github.com/vmlet/vmlet/vmm/qemu/qmp/qmptest"
)

// checkSchema checks what is known of a QEMU's schema by its major version. (Only a
// test may look at the version.)
func checkSchema(t *testing.T, s *qmp.Schema, major int) {
	t.Helper()
	for name, check := range map[string]struct{ got, want bool }{
		"migrate uri":                 {s.HasArgument("migrate", "uri"), true},
		"migrate channels":            {s.HasArgument("migrate", "channels"), major >= 9},
		"migrate channels addr":       {s.HasArgument("migrate", "channels", "addr", "transport"), major >= 9},
		"migrate channels addr file":  {s.HasArgument("migrate", "channels", "addr", "filename"), major >= 9},
		"migrate none":                {s.HasArgument("migrate", "no-such"), false},
		"none none":                   {s.HasArgument("no-such", "no-such", "no-such"), false},
		"an event is no command":      {s.HasArgument("SHUTDOWN", "reason"), false},
		"exit-on-error":               {s.HasArgument("migrate-incoming", "exit-on-error"), major >= 10},
		"rom of some backend":         {s.HasArgument("object-add", "rom"), major >= 9},
		"mem-path of some backend":    {s.HasArgument("object-add", "mem-path"), true},
		"block device by alternate":   {s.HasArgument("blockdev-add", "file", "filename"), true},
		"query-status takes nothing":  {s.HasArgument("query-status", "status"), false},
		"getfd takes fdname":          {s.HasArgument("getfd", "fdname"), true},
		"capability of a list's item": {s.HasArgument("migrate-set-capabilities", "capabilities", "capability"), true},
	} {
		if check.got != check.want {
			t.Errorf("%s: %v, want %v", name, check.got, check.want)
		}
	}
}

// smallSchema has what the two versions of QEMU have not: a newer kind of type,
// circles, and types that don't exist.
const smallSchema = `[
 {"name": "go", "meta-type": "command", "arg-type": "1", "ret-type": "0", "features": ["deprecated", {"later": 1}], "allow-oob": true},
 {"name": "go", "meta-type": "event", "arg-type": "2"},
 {"name": "0", "meta-type": "object", "members": []},
 {"name": "1", "meta-type": "object", "tag": "kind", "members": [
   {"name": "kind", "type": "3"}, {"name": "list", "type": "[1]", "default": null}, {"name": "lost", "type": "99"},
   {"name": "either", "type": "4"}, {"name": "new", "type": "5"}],
  "variants": [{"case": "a", "type": "2"}, {"case": "b", "type": "0"}, {"case": "c", "type": "98"}]},
 {"name": "2", "meta-type": "object", "members": [{"name": "old", "type": "6"}]},
 {"name": "3", "meta-type": "enum", "members": [{"name": "a"}, {"name": "b", "features": ["deprecated"]}], "values": ["a", "b"]},
 {"name": "[1]", "meta-type": "array", "element-type": "1"},
 {"name": "[7]", "meta-type": "array", "element-type": "[7]"},
 {"name": "4", "meta-type": "alternate", "members": [{"type": "3"}, {"type": "2"}, {"type": "[7]"}, {"type": "4"}]},
 {"name": "5", "meta-type": "tuple", "members": {"first": 1}, "element-type": [2]},
 {"name": "6", "meta-type": "enum", "values": ["x", "y"]}
]`

func TestSchema(t *testing.T) {
	server, client := startServer(t)
	server.Handle("query-qmp-schema", qmptest.Args{}, qmptest.Return(json.RawMessage(smallSchema)))
	s, err := client.Schema(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, check := range map[string]struct{ got, want bool }{
		"a member":                {s.HasArgument("go", "kind"), true},
		"through an array":        {s.HasArgument("go", "list", "either"), true},
		"round a circle":          {s.HasArgument("go", "list", "list", "list", "kind"), true},
		"of an alternate":         {s.HasArgument("go", "either", "old"), true},
		"of a variant":            {s.HasArgument("go", "old"), true},
		"of an enum":              {s.HasArgument("go", "kind", "a"), false},
		"no such member":          {s.HasArgument("go", "z"), false},
		"of a type that is lost":  {s.HasArgument("go", "lost"), false},
		"of a newer type":         {s.HasArgument("go", "new", "first"), false},
		"a newer type is a type":  {s.HasArgument("go", "new"), true},
		"no such command":         {s.HasArgument("z", "kind"), false},
		"below what isn't there":  {s.HasArgument("go", "lost", "x", "y"), false},
		"an enum is an argument":  {s.HasArgument("go", "either", "old", "x"), false},
		"another type's own name": {s.HasArgument("2", "old"), false},
	} {
		if check.got != check.want {
			t.Errorf("%s: %v, want %v", name, check.got, check.want)
		}
	}
}

func TestParseSchemaRefuses(t *testing.T) {
	for _, reply := range []string{``, `{}`, `[1]`, `[{"name": 1}]`, `[{"name": "x", "meta-type": "object", "members": 1}]`} {
		if _, err := qmp.ParseSchema([]byte(reply)); err == nil {
			t.Errorf("%s was taken", reply)
		}
	}
}

func FuzzSchema(f *testing.F) {
	f.Add([]byte(smallSchema))
	f.Add([]byte(`[{"name": "c", "meta-type": "command", "arg-type": "a"}, {"name": "a", "meta-type": "alternate", "members": [{"type": "a"}]}]`))
	f.Add([]byte(`[null]`))
	f.Fuzz(func(t *testing.T, reply []byte) {
		s, err := qmp.ParseSchema(reply)
		if err != nil {
			return
		}
		for _, name := range []string{"go", "c", ""} {
			s.HasArgument(name, "list", "list", "either", "old")
			s.HasArgument(name, "")
		}
	})
}
