package probe

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/vmm/cloudhypervisor"
)

func TestDetails(t *testing.T) {
	dir := t.TempDir()
	missing, folder, second, third := filepath.Join(dir, "missing"), dir, filepath.Join(dir, "second"), filepath.Join(dir, "third")
	for _, path := range []string{second, third} {
		write(t, path, "firmware")
	}
	for _, c := range []struct {
		name     string
		help     string
		firmware []string
		want     string
		has      []string
	}{
		{"all", strings.Replace(help, "on: path=</path/to/a/file>\n", "on: path=</path/to/a/file> or fd=<fd>\n", 1),
			[]string{missing, folder, second, third}, second, []string{cloudhypervisor.FeatureSocket, cloudhypervisor.FeatureEvents, cloudhypervisor.FeatureLandlock, cloudhypervisor.FeatureSeccomp}},
		{"no firmware", help, []string{missing}, "", []string{cloudhypervisor.FeatureSocket, cloudhypervisor.FeatureLandlock, cloudhypervisor.FeatureSeccomp}},
		{"no Landlock", strings.ReplaceAll(help, "--landlock", "--padlock"), []string{third}, third, []string{cloudhypervisor.FeatureSocket, cloudhypervisor.FeatureSeccomp}},
	} {
		p := New(Config{Binary: program(t, "cloud-hypervisor v53.0.0\n", c.help), Architecture: "amd64", Firmware: c.firmware})
		info, err := p.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		d, ok := cloudhypervisor.DetailsOf(info)
		if !ok {
			t.Fatalf("details of type %T", info.Details)
		}
		if d.Firmware != c.want || d.Arch != "amd64" {
			t.Errorf("%s: %+v", c.name, d)
		}
		if landlock := slices.Contains(c.has, cloudhypervisor.FeatureLandlock) && landlockVersion() >= landlockWanted; d.Landlock != landlock {
			t.Errorf("%s: Landlock %v, want %v", c.name, d.Landlock, landlock)
		}
		for _, feature := range []string{cloudhypervisor.FeatureSocket, cloudhypervisor.FeatureEvents, cloudhypervisor.FeatureLandlock, cloudhypervisor.FeatureSeccomp} {
			if d.Has(feature) != slices.Contains(c.has, feature) {
				t.Errorf("%s: %s: %v", c.name, feature, d.Has(feature))
			}
		}
		// They are kept, and told to other processes.
		text, err := json.Marshal(d)
		var again cloudhypervisor.Details
		if err != nil || json.Unmarshal(text, &again) != nil || again.Firmware != d.Firmware || !slices.Equal(again.Features, d.Features) {
			t.Errorf("%s: %s: %v", c.name, text, err)
		}
	}
}
