package doctest

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestPure: a program that judges specifications away from a node can link the packages that do,
// without anything that runs programs, opens devices or speaks with a VMM; vmlet-controller and
// vmlet-api link nothing else of VMMs and hypervisors. What these packages share with others are
// types of images, disks and lists of numbers.
func TestPure(t *testing.T) {
	own := []string{"os", "os/exec", "net/http", "golang.org/x/sys/unix", "log/slog"}
	const node = `/(probe|monitor|driver)$|^hypervisor/device$|^vmm/internal/run$|^sysfs$|^shim(/|$)|^agent(/|$)`
	everywhere := regexp.MustCompile(`^(os/exec|net/http)$|` + node)
	for _, pure := range []string{
		"spec", "plan", "vmm", "vmm/standard", "vmm/described", "vmm/qemu", "vmm/cloudhypervisor",
		"hypervisor", "hypervisor/standard", "hypervisor/kvm", "hypervisor/mshv", "hypervisor/emulation",
	} {
		for _, imported := range imports(t, pure) {
			if slices.Contains(own, imported) {
				t.Errorf("%s imports %s", pure, imported)
			}
		}
		refuse(t, pure, everywhere)
	}
	for _, program := range []string{"cmd/vmlet-controller", "cmd/vmlet-api"} {
		refuse(t, program, regexp.MustCompile(node))
	}
}

// refuse reports every import of a package, direct or through others of this module, that matches.
func refuse(t *testing.T, folder string, forbidden *regexp.Regexp) {
	t.Helper()
	seen := map[string]bool{}
	for next := []string{folder}; len(next) > 0; next = next[1:] {
		if seen[next[0]] {
			continue
		}
		seen[next[0]] = true
		for _, imported := range imports(t, next[0]) {
			inTree, is := strings.CutPrefix(imported, module)
			if forbidden.MatchString(inTree) {
				t.Errorf("%s imports %s by way of %s", folder, inTree, next[0])
			}
			if is {
				next = append(next, inTree)
			}
		}
	}
}

// imports are those of a folder's package, without its tests.
func imports(t *testing.T, folder string) (all []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: no package, %v", folder, err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range file.Imports {
			imported, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, imported)
		}
	}
	return all
}

// TestRulesArePure: the rules of the controllers of VMs and instances are functions of what was observed: they have no
// client of the API server, nothing to cancel and nobody to tell.
func TestRulesArePure(t *testing.T) {
	var rooms []string
	for _, room := range []string{"condition", "view", "action", "claims", "trouble", "attach", "guest", "save", "phase", "lifecycle", "status"} {
		rooms = append(rooms, "cluster/instance/"+room)
	}
	rooms = append(rooms, "cluster/machine/action", "cluster/machine/run", "cluster/machine/hibernation")
	effects := regexp.MustCompile(`^(context|os|sync|net/http)$|^k8s\.io/client-go/|^sigs\.k8s\.io/controller-runtime/`)
	for _, room := range rooms {
		for _, imported := range imports(t, room) {
			if effects.MatchString(imported) {
				t.Errorf("%s imports %s", room, imported)
			}
		}
	}
}
