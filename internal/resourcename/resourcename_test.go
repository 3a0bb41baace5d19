package resourcename

import (
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	// The longest that Kubernetes takes: a domain of 253 bytes with "requests."
	// before it, and a name of 63.
	domain := strings.Repeat("a", 60) + strings.Repeat("."+strings.Repeat("b", 60), 3) + "c"
	for _, name := range []string{
		"devices.kubevirt.io/kvm", "nvidia.com/TU104GL_Tesla_T4", "localhost/x", "1.2/3", "kubernetes.io.org/x", "request.org/x",
		domain + "/x", "a/" + strings.Repeat("x", 63),
	} {
		if err := Check(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, why := range map[string]string{
		"": "want DOMAIN/NAME", "T4": "want DOMAIN/NAME", "/T4": "want DOMAIN/NAME", "a/": "want DOMAIN/NAME", "a/b/c": "want DOMAIN/NAME",
		"A.org/x": "want DOMAIN/NAME", "a_b/x": "want DOMAIN/NAME", "a..b/x": "want DOMAIN/NAME", "a.-b/x": "want DOMAIN/NAME", "-a/x": "want DOMAIN/NAME",
		"a/-x": "want DOMAIN/NAME", "a/x.": "want DOMAIN/NAME", "a/x y": "want DOMAIN/NAME", "a/x\n": "want DOMAIN/NAME", "a/\xff": "want DOMAIN/NAME",
		"a/" + strings.Repeat("x", 64): "want DOMAIN/NAME", domain + "c/x": "want DOMAIN/NAME",
		"kubernetes.io/x": "Kubernetes' own", "a.kubernetes.io/x": "Kubernetes' own", "akubernetes.io/x": "Kubernetes' own",
		"requests.org/x": "requests. is how",
	} {
		if err := Check(name); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v, want %q", name, err, why)
		}
	}
	if err := Check(strings.Repeat("x", 1<<20)); len(err.Error()) > 500 {
		t.Errorf("%d bytes of error", len(err.Error()))
	}
}

func TestWord(t *testing.T) {
	for name, want := range map[string]string{"devices.kubevirt.io/kvm": "kvm", "kvm": "kvm", "a/b/c": "c", "a/": ""} {
		if got := Word(name); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
}
