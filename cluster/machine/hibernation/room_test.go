package hibernation

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// TestRoom: memory, devices' state and the disks that are made in the pod, with the file system's.
func TestRoom(t *testing.T) {
	const gib = int64(1) << 30
	empty := kubevirtv1.Volume{EmptyDisk: &kubevirtv1.EmptyDiskSource{Capacity: resource.MustParse("2Gi")}}
	container := kubevirtv1.Volume{ContainerDisk: &kubevirtv1.ContainerDiskSource{}}
	huge := kubevirtv1.Volume{EmptyDisk: &kubevirtv1.EmptyDiskSource{Capacity: resource.MustParse("9223372036854775807")}}
	claim := kubevirtv1.Volume{PersistentVolumeClaim: &kubevirtv1.PersistentVolumeClaimSource{}}
	for name, c := range map[string]struct {
		volumes []kubevirtv1.Volume
		net     int64
	}{
		"memory alone":       {nil, gib + gib/2},
		"on a claim":         {[]kubevirtv1.Volume{claim}, gib + gib/2},
		"an empty disk":      {[]kubevirtv1.Volume{empty}, 3*gib + gib/2},
		"a container disk":   {[]kubevirtv1.Volume{container}, 2*gib + gib/2},
		"both":               {[]kubevirtv1.Volume{empty, container}, 4*gib + gib/2},
		"more than there is": {[]kubevirtv1.Volume{huge}, 0},
	} {
		memory := resource.MustParse("1Gi")
		instance := &kubevirtv1.VirtualMachineInstance{}
		instance.Spec.Domain.Memory = &kubevirtv1.Memory{Guest: &memory}
		instance.Spec.Volumes = c.volumes
		got := RoomFor(instance)
		if c.net == 0 {
			if got < 1<<60 {
				t.Errorf("%s: %d", name, got)
			}
			continue
		}
		if least := float64(c.net) * 1.0549; float64(got) < least || float64(got) > least+2*mib*1.1 || got%mib != 0 {
			t.Errorf("%s: %d, want 5.5 %% more than %d", name, got, c.net)
		}
	}
}
