package pods

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmlet/vmlet/contract"
)

// TestImageOfAStackIsKept: a node says of which image it speaks; images of other containers are not remembered.
func TestImageOfAStackIsKept(t *testing.T) {
	got := slimContainers([]corev1.Container{{Name: contract.ContainerStack, Image: "example.org/launcher:1"}, {Name: "compute", Image: "a"}, {Name: contract.ContainerStack, Image: strings.Repeat("a", 9*maxImage)}})
	if got[0].Image != "example.org/launcher:1" || got[1].Image != "" || len(got[2].Image) != maxImage {
		t.Errorf("images are %.30q, %q and %d bytes", got[0].Image, got[1].Image, len(got[2].Image))
	}
}
