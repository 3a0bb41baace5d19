package subresources

import (
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// TestUsersRoles: the API server asks by the first part of an action's path, vmlet-api by the whole.
func TestUsersRoles(t *testing.T) {
	f, err := os.Open("../../deploy/cluster/users/users.yaml")
	must(t, err)
	defer f.Close()
	whole := 0
	for docs := utilyaml.NewYAMLOrJSONDecoder(f, 4<<10); ; {
		var role rbacv1.ClusterRole
		if err := docs.Decode(&role); err == io.EOF {
			break
		} else {
			must(t, err)
		}
		for _, rule := range role.Rules {
			for _, r := range rule.Resources {
				parts := strings.Split(r, "/")
				if len(parts) < 3 {
					continue
				}
				whole++
				if first := parts[0] + "/" + parts[1]; !slices.Contains(rule.Resources, first) {
					t.Errorf("%s: who may %s %s may not %s", role.Name, rule.Verbs, r, first)
				}
			}
		}
	}
	if whole == 0 {
		t.Error("no role has an action of more than one part")
	}
}
