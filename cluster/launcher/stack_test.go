package launcher_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/cluster/launcher"
)

// TestStack: a virtualisation stack's image, capabilities and overhead are those of VMs' pods; a guest
// that was saved goes on in the image that saved it.
func TestStack(t *testing.T) {
	usual := read(t, simple)
	in := read(t, simple)
	in.Configuration.Stack = configuration.Stack{
		Launcher: "example.org/launcher:1", Capabilities: []corev1.Capability{"NET_BIND_SERVICE"}, Overhead: new(resource.MustParse("300Mi")),
	}
	p := pod(t, in)
	c := p.Spec.Containers[0]
	if c.Image != "example.org/launcher:1" || !slices.Equal(c.SecurityContext.Capabilities.Add, in.Configuration.Stack.Capabilities) {
		t.Errorf("the container has image %s and capabilities %v", c.Image, c.SecurityContext.Capabilities)
	}
	before, err := launcher.Overhead(usual)
	if err != nil {
		t.Fatal(err)
	}
	without := pod(t, usual).Spec.Containers[0].Resources.Requests.Memory().Value() - before
	if got := c.Resources.Requests.Memory().Value() - without; got != 300<<20 {
		t.Errorf("the overhead is %d bytes", got)
	}
	in.Claims = map[string]*corev1.PersistentVolumeClaim{"c": {}}
	in.Instance.Spec.StartStrategy = new(kubevirtv1.StartRestore)
	in.Instance.Spec.UtilityVolumes = []kubevirtv1.UtilityVolume{{Name: "hibernate", Type: new(kubevirtv1.UtilityHibernation), PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}
	in.Instance.Spec.RestoreFrom = &kubevirtv1.SavedImage{ID: "a", ClaimName: "c", Directory: "d", Images: []kubevirtv1.SavedContainerImage{{Container: "compute", Image: "old"}}}
	if got := pod(t, in).Spec.Containers[0].Image; got != "old" {
		t.Errorf("a saved guest goes on in %s", got)
	}
}
