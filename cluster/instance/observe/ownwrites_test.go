package observe

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// TestOwnWrites: a cache that is behind this process's own writes does not count, and one that has what
// others wrote does.
func TestOwnWrites(t *testing.T) {
	at := func(uid types.UID, version string) *kubevirtv1.VirtualMachineInstance {
		vmi := new(kubevirtv1.VirtualMachineInstance)
		vmi.Namespace, vmi.Name, vmi.UID, vmi.ResourceVersion = "default", "web", uid, version
		return vmi
	}
	key := types.NamespacedName{Namespace: "default", Name: "web"}
	for _, test := range []struct {
		name   string
		writes [][2]string // from one version to another
		cached *kubevirtv1.VirtualMachineInstance
		want   string
	}{
		{"nothing written", nil, at("a", "1"), "1"},
		{"behind", [][2]string{{"1", "3"}}, at("a", "1"), "3"},
		{"behind by two", [][2]string{{"1", "3"}, {"3", "4"}}, at("a", "1"), "4"},
		{"behind by one of two", [][2]string{{"1", "3"}, {"3", "4"}}, at("a", "3"), "4"},
		{"caught up", [][2]string{{"1", "3"}}, at("a", "3"), "3"},
		{"another's later", [][2]string{{"1", "3"}}, at("a", "5"), "5"},
		{"before what another wrote in between", [][2]string{{"1", "3"}, {"5", "6"}}, at("a", "1"), "1"},
		{"a new one of the name", [][2]string{{"1", "3"}}, at("b", "1"), "1"},
		{"gone", [][2]string{{"1", "3"}}, nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			var w ownWrites
			for _, write := range test.writes {
				w.note(at("a", write[0]), at("a", write[1]))
			}
			got := ""
			if vmi := w.latest(key, test.cached); vmi != nil {
				got = vmi.ResourceVersion
			}
			if got != test.want {
				t.Errorf("version %q, want %q", got, test.want)
			}
			if kept := len(w.by) == 1; kept != (test.cached != nil && test.want != test.cached.ResourceVersion) {
				t.Errorf("kept: %v, though the version is %q", kept, got)
			}
		})
	}
}
