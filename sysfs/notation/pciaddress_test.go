package notation

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestParsePCIAddress(t *testing.T) {
	for text, want := range map[string]string{
		"0000:00:1f.2": "0000:00:1f.2", "10000:e1:00.0": "10000:e1:00.0", "FFFFFFFF:FF:1F.7": "ffffffff:ff:1f.7",
		"00000000:3B:00.1": "0000:3b:00.1",
	} {
		address, err := ParsePCIAddress(text)
		if err != nil || address.String() != want {
			t.Errorf("%q: %v, %v; want %s", text, address, err, want)
		}
	}
	for _, text := range []string{
		"", "00:1f.2", "0000:00:20.0", "0000:00:1f.8", "0000:00:1f", "0000:00:1f.2 ", "000:00:1f.2", "100000000:00:1f.2",
		"0000:0:1f.2", "0000:000:1.2", "0000:00:1f.02", "0x00:00:1f.2", "+000:00:1f.2", "0000:+1:1f.2", "0000:00:1f.-", "0000-00-1f.2", "0000:00:1g.2",
	} {
		if address, err := ParsePCIAddress(text); err == nil {
			t.Errorf("%q: taken as %s", text, address)
		}
	}
	a, _ := ParsePCIAddress("10000:e1:1c.5")
	if a.Domain() != 0x10000 || a.Bus() != 0xe1 || a.Device() != 0x1c || a.Function() != 5 {
		t.Errorf("%s: %x %x %x %x", a, a.Domain(), a.Bus(), a.Device(), a.Function())
	}
}

func TestPCIAddressOrder(t *testing.T) {
	want := []string{"0000:00:00.0", "0000:00:00.7", "0000:00:1f.0", "0000:ff:00.0", "1000:00:00.0", "ffff:00:00.0", "10000:00:00.0", "a-device", "mtty"}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, CompareDevices)
	if !slices.Equal(got, want) {
		t.Error(got)
	}
}

func TestPCIAddressJSON(t *testing.T) {
	var got []PCIAddress
	if err := json.Unmarshal([]byte(`["0000:3B:00.1","10000:00:00.0"]`), &got); err != nil {
		t.Fatal(err)
	}
	if text, err := json.Marshal(got); err != nil || string(text) != `["0000:3b:00.1","10000:00:00.0"]` {
		t.Errorf("%s, %v", text, err)
	}
	if err := json.Unmarshal([]byte(`["3b:00.1"]`), &got); err == nil {
		t.Error("an address without a domain is taken")
	}
}

func FuzzParsePCIAddress(f *testing.F) {
	for _, text := range []string{"0000:00:1f.2", "10000:e1:00.0", "0000:00:20.0", ":::.", "FFFFFFFF:ff:1f.7"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		address, err := ParsePCIAddress(text)
		if err != nil {
			return
		}
		again, err := ParsePCIAddress(address.String())
		if err != nil || again != address {
			t.Errorf("%q: %s, then %s, %v", text, address, again, err)
		}
	})
}

func TestVendorDevice(t *testing.T) {
	kind, err := ParseVendorDevice("10DE:1eb8")
	if err != nil || kind.String() != "10de:1eb8" {
		t.Fatal(kind, err)
	}
	for _, text := range []string{"", "10de", "10de:", ":1eb8", "10de:1eb8:0", "0x10de:1eb8", "10de:01eb8", "10d:1eb8", "*:*"} {
		if _, err := ParseVendorDevice(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
