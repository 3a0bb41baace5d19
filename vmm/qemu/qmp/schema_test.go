package qmp_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/vmlet/vmlet/vmm/qemu/qmp"
	"github.com/vmlet/vmlet/vmm/qemu/qmp/qmptest"
)

// checkSchema checks what is known of a QEMU's schema by its major version. (Only a
// test may look at the version.)
func checkSchema(t *testing.T, s *qmp.Schema, major int) {
	t.Helper()
	checks := map[string]struct{ got, want bool }{
		"query-status":                   {s.HasCommand("query-status"), true},
		"no-such":                        {s.HasCommand("no-such"), false},
		"an event is no command":         {s.HasCommand("SHUTDOWN"), false},
		"SHUTDOWN":                       {s.HasEvent("SHUTDOWN"), true},
		"SHUTDOWN reason":                {s.EventData("SHUTDOWN").Member("reason").HasValue("guest-panic"), true},
		"migrate uri":                    {s.HasArgument("migrate", "uri"), true},
		"migrate uri optional":           {s.CommandArguments("migrate").Optional("uri"), major >= 9},
		"migrate channels":               {s.HasArgument("migrate", "channels"), major >= 9},
		"migrate channels addr":          {s.HasArgument("migrate", "channels", "addr", "transport"), major >= 9},
		"migrate channels addr file":     {s.CommandArguments("migrate").Member("channels").Member("addr").Variant("file").Member("filename") != nil, major >= 9},
		"migrate none":                   {s.HasArgument("migrate", "no-such"), false},
		"none none":                      {s.HasArgument("no-such", "no-such", "no-such"), false},
		"x-ignore-shared":                {s.CommandArguments("migrate-set-capabilities").Member("capabilities").Member("capability").HasValue("x-ignore-shared"), true},
		"mapped-ram":                     {s.CommandArguments("migrate-set-capabilities").Member("capabilities").Member("capability").HasValue("mapped-ram"), major >= 9},
		"exit-on-error":                  {s.HasArgument("migrate-incoming", "exit-on-error"), major >= 10},
		"rom of a file backend":          {s.CommandArguments("object-add").Variant("memory-backend-file").Member("rom") != nil, major >= 9},
		"mem-path of a file backend":     {s.CommandArguments("object-add").Variant("memory-backend-file").Member("mem-path") != nil, true},
		"mem-path of a ram backend":      {s.CommandArguments("object-add").Variant("memory-backend-ram").Member("mem-path") != nil, false},
		"mem-path of some backend":       {s.HasArgument("object-add", "mem-path"), true},
		"block device by an alternate":   {s.HasArgument("blockdev-add", "file", "filename"), true},
		"reply":                          {s.CommandReply("query-status").Member("status").HasValue("postmigrate"), true},
		"reply of a list":                {s.CommandReply("query-fdsets").Member("fdset-id").Meta() == qmp.MetaBuiltin, true},
		"query-status takes nothing":     {s.CommandArguments("query-status") != nil && len(s.CommandArguments("query-status").Members()) == 0, true},
		"getfd takes fdname":             {slices.Equal(s.CommandArguments("getfd").Members(), []string{"fdname"}), true},
		"query-version isn't deprecated": {s.Command("query-version").HasFeature("deprecated"), false},
	}
	for name, check := range checks {
		if check.got != check.want {
			t.Errorf("%s: %v, want %v", name, check.got, check.want)
		}
	}
}

// smallSchema has what the two versions of QEMU have not: both forms of enums, a
// newer kind of type, features, circles, and types that don't exist.
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
	args := s.CommandArguments("go")
	values := map[string]struct{ got, want []string }{
		"members":           {args.Members(), []string{"kind", "list", "lost", "either", "new"}},
		"through an array":  {args.Member("list").Members(), []string{"kind", "list", "lost", "either", "new"}},
		"values":            {args.Member("kind").Values(), []string{"a", "b"}},
		"old values":        {s.EventData("go").Member("old").Values(), []string{"x", "y"}},
		"of an alternate":   {args.Member("either").Values(), []string{"a", "b"}},
		"alternate members": {args.Member("either").Members(), []string{"old"}},
		"of a circle":       {args.Member("list").Member("list").Member("list").Member("kind").Values(), []string{"a", "b"}},
		"of an object":      {args.Values(), nil},
		"of nothing":        {args.Member("lost").Member("x").Variant("y").Values(), nil},
		"of a newer type":   {args.Member("new").Members(), nil},
	}
	for name, v := range values {
		if !slices.Equal(v.got, v.want) {
			t.Errorf("%s: %v, want %v", name, v.got, v.want)
		}
	}
	checks := map[string]struct{ got, want bool }{
		"of a variant":       {s.HasArgument("go", "old"), true},
		"of the variant":     {args.Variant("a").Member("old") != nil, true},
		"of another variant": {args.Variant("b").Member("old") != nil, false},
		"of a lost variant":  {args.Variant("c").Member("old") != nil, false},
		"no such variant":    {args.Variant("z") != nil, false},
		"optional":           {args.Optional("list"), true},
		"not optional":       {args.Optional("kind"), false},
		"no such member":     {args.Optional("z"), false},
		"newer type":         {args.Member("new").Meta() == "tuple", true},
		"feature":            {s.Command("go").HasFeature("deprecated"), true},
		"no such feature":    {s.Command("go").HasFeature("z"), false},
		"feature of none":    {s.Command("z").HasFeature("z"), false},
		"lost":               {args.Member("lost") != nil, false},
	}
	for name, check := range checks {
		if check.got != check.want {
			t.Errorf("%s: %v, want %v", name, check.got, check.want)
		}
	}
}

func TestParseSchemaRefuses(t *testing.T) {
	for _, reply := range []string{``, `{}`, `[1]`, `[{"name": 1}]`, `[{"name": "x", "meta-type": "enum", "values": 1}]`} {
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
			args := s.CommandArguments(name)
			for _, member := range args.Members() {
				args.Member(member).Values()
				args.Variant(member).Member(member)
			}
			s.EventData(name).Members()
		}
	})
}
