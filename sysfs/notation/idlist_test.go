package notation

import (
	"slices"
	"strings"
	"testing"
)

func TestParseIDList(t *testing.T) {
	for _, c := range []struct {
		text, want string
		wrong      bool
	}{
		{text: "", want: ""},
		{text: "\n", want: ""},
		{text: " (null)\n", want: ""},
		{text: "0", want: "0"},
		{text: "0-3,8\n", want: "0-3,8"},
		{text: "8,0-3,2-4", want: "0-4,8"},
		{text: "5,5,5", want: "5"},
		{text: "0-7:2/4", want: "0-1,4-5"},
		{text: "0-31:1/8", want: "0,8,16,24"},
		{text: "3-5:1/1", want: "3-5"},
		{text: "65535", want: "65535"},
		{text: "65536", wrong: true},
		{text: "9223372036854775808", wrong: true},
		{text: "-1", wrong: true},
		{text: "3-1", wrong: true},
		{text: "1-", wrong: true},
		{text: "1--2", wrong: true},
		{text: "1,,2", wrong: true},
		{text: "1,", wrong: true},
		{text: "+1", wrong: true},
		{text: "0x1", wrong: true},
		{text: "0-7:0/4", wrong: true},
		{text: "0-7:5/4", wrong: true},
		{text: "0-7:1/0", wrong: true},
		{text: "0-7:2", wrong: true},
		{text: "all", wrong: true},
		{text: strings.Repeat("0-65535,", 100) + "0", wrong: true},
	} {
		list, err := ParseIDList(c.text)
		if (err != nil) != c.wrong || list.String() != c.want {
			t.Errorf("%.60q: %v (%v), want %q, wrong: %v", c.text, list, err, c.want, c.wrong)
		}
	}
}

// FuzzParseIDList: a list is sorted, within bounds, and reads as what it is written as.
func FuzzParseIDList(f *testing.F) {
	for _, text := range []string{"", "(null)", "0-3,8\n", "0-31:2/8", "65535", "9-0", "0-9223372036854775808", "0,,1", "0-65535,0-65535"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list, err := ParseIDList(text)
		if err != nil {
			return
		}
		for i, id := range list {
			if id < 0 || id >= MaxID || (i > 0 && id <= list[i-1]) || !list.Has(id) {
				t.Fatalf("%q is %v", text, list)
			}
		}
		again, err := ParseIDList(list.String())
		if err != nil || !slices.Equal(list, again) {
			t.Fatalf("%q is %v, and that %v: %v", text, list, again, err)
		}
	})
}

func TestParseMask(t *testing.T) {
	for text, want := range map[string]string{
		"3": "0-1", "00000000,0000000f": "0-3", "1,00000000,80000001\n": "0,31,64", "0": "", "ffffffff": "0-31",
		"": "wrong", "x": "wrong", "100000000": "wrong", "1,,1": "wrong", "-1": "wrong", "1" + strings.Repeat(",0", 2047): "65504",
		"0" + strings.Repeat(",0", 2048): "wrong",
	} {
		list, err := ParseMask(text)
		if got := list.String(); (err != nil) != (want == "wrong") || (err == nil && got != want) {
			t.Errorf("%.60q: %q (%v), want %s", text, got, err, want)
		}
	}
}

// FuzzParseMask: a mask is what its list says.
func FuzzParseMask(f *testing.F) {
	f.Add("00000001,0000000f\n")
	f.Add("3")
	f.Add(",")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := ParseMask(text)
		if err != nil {
			return
		}
		again, err := ParseIDList(list.String())
		if err != nil || !slices.Equal(list, again) {
			t.Fatalf("%q is %v, and that %v: %v", text, list, again, err)
		}
	})
}
