package probe

import (
	"encoding/xml"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/qemu"
)

// featureList is libvirt's, where it is installed.
const featureList = "/usr/share/libvirt/cpu_map/x86_features.xml"

// fromKernel are features that libvirt has names for and QEMU gives to no
// guest: those of the host's own cache monitoring, or what the guest's kernel
// switches on.
var fromKernel = []string{"cmt", "cvt16", "mbm_local", "mbm_total", "osxsave", "ospke", "pconfig"}

// TestFeatureNames: every name that a QEMU has and libvirt knows in any
// spelling comes out in libvirt's; and every name of libvirt's is one of QEMU's.
func TestFeatureNames(t *testing.T) {
	text, err := os.ReadFile(featureList)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("needs libvirt's list of features: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Features []struct {
			Name string `xml:"name,attr"`
		} `xml:"feature"`
	}
	if err := xml.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	plain := strings.NewReplacer("_", "", "-", "", ".", "")
	spelling := map[string]string{} // by the letters alone
	for _, f := range list.Features {
		spelling[plain.Replace(f.Name)] = f.Name
	}
	if len(spelling) < 200 {
		t.Fatalf("libvirt's list has %d features", len(spelling))
	}
	met := map[string]bool{}
	forEachQEMU(t, func(t *testing.T, _ *Program, info vmm.Info) {
		for _, property := range info.Details.(*qemu.Details).Accelerators[spec.HypervisorEmulation].Known {
			name := featureName(property)
			met[name] = true
			if theirs := spelling[plain.Replace(property)]; theirs != "" && name != theirs {
				t.Errorf("%s becomes %q, and libvirt says %s", property, name, theirs)
			}
			if theirs := spelling[plain.Replace(name)]; theirs != "" && name != theirs {
				t.Errorf("%s becomes %q, and libvirt says %s", property, name, theirs)
			}
		}
	})
	for _, name := range spelling {
		if len(met) > 0 && !met[name] && !slices.Contains(fromKernel, name) {
			t.Errorf("no feature of QEMU's becomes libvirt's %s", name)
		}
	}
}

func TestFeatureNamesOnce(t *testing.T) {
	got := featureNames([]string{"xd", "nx", "kvm-pv-eoi", "sse4-1", "lahf_lm", "pclmulqdq", "hv-time", "pmu", "i64"})
	if want := []string{"lahf_lm", "lm", "nx", "pclmuldq", "sse4.1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
