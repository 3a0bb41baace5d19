package sentences

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestPullCause: the cause is the same while the kubelet pulls and while it waits, or it is not known.
func TestPullCause(t *testing.T) {
	for said, want := range map[string]string{
		"denied": "denied",
		`Back-off pulling image "debian": ErrImagePull: denied`:            "denied",
		`Back-off pulling image "debian": ErrImagePull: a: b` + "\n" + "c": "a: b\nc",
		`Back-off pulling image "debian": RegistryUnavailable: away`:       "RegistryUnavailable: away",
		`Back-off pulling image "debian"`:                                  "",
		"":                                                                 "",
	} {
		if got := PullCause(said); got != want {
			t.Errorf("%q: %q, want %q", said, got, want)
		}
	}
}

// TestMissing: at most as many objects are named as were asked for.
func TestMissing(t *testing.T) {
	const said = `secret "a" not found, configmap "b.c" not found, failed to fetch token: serviceaccounts "d" not found; claim "e" not found`
	want := []string{"Secret a", "ConfigMap b.c", "ServiceAccount d"}
	for most := range 4 {
		if got := Missing(said, most); !slices.Equal(got, want[:most]) {
			t.Errorf("at most %d: %q", most, got)
		}
	}
}

// searched is a search of a message, an error's text or a fault's, beside those of the table of TestNowhereElse.
var searched = regexp.MustCompile(`strings\.(HasPrefix|HasSuffix|Contains|Cut|CutPrefix|CutSuffix|TrimPrefix|TrimSuffix|Index|Split)\([^,\n]*(?:[mM]essage|Error\(\)|Detail|\.Text|[wW]arning|note),`)

// TestNowhereElse: neither half decides by the words of messages, but where nothing else is offered.
func TestNowhereElse(t *testing.T) {
	allowed := map[string]string{
		"cluster/sentences/sentences.go": "this package",
		"cluster/convert/words.go":       "a fault's object stands in its text in the same letters (contract.Fault)",
		"agent/kube/complaint.go":        "the API server names an admission policy in its words alone",
		"agent/vm/save.go":               "an error's text has its folder once",
	}
	found := make(map[string]bool)
	for _, half := range []string{"cluster", "agent"} {
		root := filepath.Join("../..", half)
		if err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			name := strings.TrimPrefix(filepath.ToSlash(path), "../../")
			if hit := searched.Find(text); hit != nil {
				found[name] = true
				if allowed[name] == "" {
					t.Errorf("%s decides by a sentence: %s", name, hit)
				}
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for name := range allowed {
		if !found[name] {
			t.Errorf("%s searches no sentence: take it out of the table", name)
		}
	}
}
