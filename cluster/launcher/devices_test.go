package launcher

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/hypervisor"
)

// TestRequested: an optional device is requested where some node offers it, unless others open it for
// the pod; one that is needed always is.
func TestRequested(t *testing.T) {
	const own, extra = "devices.kubevirt.io/own", "devices.kubevirt.io/extra"
	devices := []hypervisor.DeviceRequest{{Resource: own}, {Resource: extra, Optional: true}, {Resource: contract.ResourceTUN, Optional: true}}
	for name, c := range map[string]struct{ offered, want []corev1.ResourceName }{
		"nobody has looked": {nil, []corev1.ResourceName{own}},
		"others":            {[]corev1.ResourceName{own, contract.ResourceTUN}, []corev1.ResourceName{own}},
		"all":               {[]corev1.ResourceName{own, extra, contract.ResourceTUN}, []corev1.ResourceName{own, extra}},
	} {
		offered := make(map[corev1.ResourceName]bool)
		for _, resource := range c.offered {
			offered[resource] = true
		}
		if got := requested(devices, offered); !slices.Equal(got, c.want) {
			t.Errorf("%s offered: %q, want %q", name, got, c.want)
		}
	}
}
