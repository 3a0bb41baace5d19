package podvm

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
	"github.com/vmlet/vmlet/internal/fingerprint"
	"github.com/vmlet/vmlet/shim"
)

// TestPodHasTheAgentsVMM: one that says so is run without its words, and one that was not asked is not believed.
func TestPodHasTheAgentsVMM(t *testing.T) {
	program := filepath.Join(t.TempDir(), "qemu")
	if err := os.WriteFile(program, []byte("program"), 0o755); err != nil {
		t.Fatal(err)
	}
	sum, err := fingerprint.Content([]string{program})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name    string
		vmm     func(*vmtest.VMM)
		asked   bool   // whether its files are the agent's
		vmms    string // the pod's own words
		same    bool   // what the pod says
		refused string
	}{
		{"the same", func(v *vmtest.VMM) { v.Made = []string{program} }, true, ``, true, ""},
		{"another", func(v *vmtest.VMM) { v.Made = []string{program} }, true, `[{"name":"qemu","said":"fake"}]`, false, ""},
		{"another that is nonsense", func(v *vmtest.VMM) { v.Made = []string{program} }, true, `[{"name":"qemu","said":{"x":1}}]`, false, "QEMU's description of itself"},
		{"the same, which it can't know", func(*vmtest.VMM) {}, false, ``, true, "what the VMMs in the pod's image say"},
		{"the agent's can't be asked", func(v *vmtest.VMM) { v.Made, v.Missing = []string{program}, errors.New("no libraries") }, false, `[]`, false, "not in the pod's image"},
		{"the agent's files can't be read", func(v *vmtest.VMM) { v.Made = []string{program + "/x"} }, false, `[]`, false, "not in the pod's image"},
		{"the same, and there is none", func(v *vmtest.VMM) { v.Made, v.Missing = []string{program}, fs.ErrNotExist }, true, ``, true, fs.ErrNotExist.Error()},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			test.vmm(w.VMM)
			a, n := w.start(), newFakeNode(w)
			n.servePod(t, a)
			proc := n.container(func(p *vmtest.Pod) {
				p.Described.VMMs, p.Described.SameVMMs = json.RawMessage(test.vmms), test.same
			})
			if test.refused != "" {
				wantText(t, n.refusal(t, proc), test.refused)
			} else {
				vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))
			}
			proc.Mu.Lock()
			defer proc.Mu.Unlock()
			want := shim.Describe{}
			if test.asked {
				want = shim.Describe{Files: []string{program}, Sum: sum}
			}
			if got := proc.Pod.Asked[0]; got.Sum != want.Sum || len(got.Files) != len(want.Files) {
				t.Errorf("asked by %+v, want %+v", got, want)
			}
		})
	}
}
