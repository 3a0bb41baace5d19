package strictyaml_test

import (
	"testing"

	"github.com/vmlet/vmlet/internal/strictyaml"
)

func TestFromJSON(t *testing.T) {
	for _, test := range []struct{ name, json, want string }{
		{"keys in order, lists", `{"b":[{"y":1,"x":"é"},[]],"a":{"c":null,"d":true}}`, "a:\n  c: null\n  d: true\nb:\n- x: é\n  \"y\": 1\n- []\n"},
		{"numbers", `{"max":18446744073709551615,"min":-9223372036854775808,"f":1.5}`, "f: 1.5\nmax: 18446744073709551615\nmin: -9223372036854775808\n"},
		{"strings that look like something else", `["yes","1","null","1e3","0x10","","2001-01-01","a: b"," x","~"]`,
			"- \"yes\"\n- \"1\"\n- \"null\"\n- \"1e3\"\n- \"0x10\"\n- \"\"\n- \"2001-01-01\"\n- 'a: b'\n- ' x'\n- \"~\"\n"},
		{"lines", `{"script":"a\nb\n"}`, "script: |\n  a\n  b\n"},
		{"escapes", `["\u0000\u001b\/\ud83d\ude00"]`, "- \"\\0\\e/\\U0001F600\"\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := strictyaml.FromJSON([]byte(test.json))
			if err != nil || string(got) != test.want {
				t.Errorf("%v\n%s\nwant\n%s", err, got, test.want)
			}
		})
	}
}
