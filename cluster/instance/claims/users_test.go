package claims_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/claims"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/scene"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/contract"
)

// TestClaimInUse: an instance with a pod uses its claims, of two without a pod the older goes first, and readers
// are not in each other's way, nor are those that share.
func TestClaimInUse(t *testing.T) {
	const later, earlier = time.Minute, -time.Minute
	deleted := func(vmi *kubevirtv1.VirtualMachineInstance) { vmi.DeletionTimestamp = &metav1.Time{Time: scene.Time} }
	uid := func(uid types.UID) func(*kubevirtv1.VirtualMachineInstance) {
		return func(vmi *kubevirtv1.VirtualMachineInstance) { vmi.UID = uid }
	}
	for name, c := range map[string]struct {
		own    func(*kubevirtv1.VirtualMachineInstance)
		other  *kubevirtv1.VirtualMachineInstance
		hasPod bool
		waits  bool
	}{
		"nobody else's":                           {scene.DiskOn("a"), scene.Another(earlier, scene.DiskOn("b")), true, false},
		"it has a pod, and is younger":            {scene.DiskOn("a"), scene.Another(later, scene.DiskOn("a")), true, true},
		"a DataVolume's claim":                    {scene.DiskOn("a", scene.DataVolume), scene.Another(later, scene.DiskOn("a")), true, true},
		"a LUN":                                   {scene.DiskOn("a", scene.Lun), scene.Another(later, scene.DiskOn("a", scene.NoTarget)), true, true},
		"it is read by the other, a disk":         {scene.DiskOn("a"), scene.Another(earlier, scene.DiskOn("a", scene.ReadOnlyDisk)), true, true},
		"it is read by the other, a claim":        {scene.DiskOn("a"), scene.Another(earlier, scene.DiskOn("a", scene.ReadOnlyClaim)), true, true},
		"it is read by the other, a CD-ROM":       {scene.DiskOn("a"), scene.Another(earlier, scene.DiskOn("a", scene.Cdrom)), true, true},
		"it is read by the other, below overlays": {scene.DiskOn("a"), scene.Another(earlier, scene.DiskOn("a", scene.Ephemeral)), true, true},
		"it is only read":                         {scene.DiskOn("a", scene.ReadOnlyDisk), scene.Another(earlier, scene.DiskOn("a")), true, true},
		"it is only read, below an overlay":       {scene.DiskOn("a", scene.Ephemeral), scene.Another(later, scene.DiskOn("a")), true, true},
		"both read it":                            {scene.DiskOn("a", scene.Ephemeral), scene.Another(earlier, scene.DiskOn("a", scene.ReadOnlyClaim)), true, false},
		"both share it":                           {scene.DiskOn("a", scene.Shareable), scene.Another(earlier, scene.DiskOn("a", scene.Shareable)), true, false},
		"both share it, one reads":                {scene.DiskOn("a", scene.Shareable, scene.ReadOnlyDisk), scene.Another(earlier, scene.DiskOn("a", scene.Shareable)), true, false},
		"it alone shares":                         {scene.DiskOn("a", scene.Shareable), scene.Another(earlier, scene.DiskOn("a")), true, true},
		"the other alone shares":                  {scene.DiskOn("a"), scene.Another(earlier, scene.DiskOn("a", scene.Shareable)), true, true},
		"it shares what the other reads":          {scene.DiskOn("a", scene.Shareable), scene.Another(earlier, scene.DiskOn("a", scene.ReadOnlyDisk)), true, true},
		"it shares one claim, and not another":    {scene.DiskOn("a", scene.Shareable), scene.Another(earlier, scene.DiskOn("a", scene.Shareable), scene.DiskOn("b")), true, false},
		"neither has a pod, older":                {scene.DiskOn("a"), scene.Another(earlier, scene.DiskOn("a")), false, true},
		"neither has a pod, younger":              {scene.DiskOn("a"), scene.Another(later, scene.DiskOn("a")), false, false},
		"neither has a pod, the same second":      {scene.DiskOn("a"), scene.Another(0, scene.DiskOn("a"), uid("uid-0000")), false, true},
		"the same second, by the UID":             {scene.DiskOn("a"), scene.Another(0, scene.DiskOn("a"), uid("uid-0002")), false, false},
		"older, and is deleted":                   {scene.DiskOn("a"), scene.Another(earlier, scene.DiskOn("a"), deleted), false, false},
		"older, and lacks another claim":          {scene.DiskOn("a"), scene.Another(earlier, scene.DiskOn("a"), scene.WaitingFor(condition.ReasonClaimNotFound)), false, false},
		"older, and waits for the same claim":     {scene.DiskOn("a"), scene.Another(earlier, scene.DiskOn("a"), scene.WaitingFor(condition.ReasonClaimInUse)), false, true},
		"older, and may wait for another claim":   {scene.DiskOn("a"), scene.Another(earlier, scene.DiskOn("a"), scene.DiskOn("b"), scene.WaitingFor(condition.ReasonClaimInUse)), false, false},
		"older, is deleted and has a pod":         {scene.DiskOn("a"), scene.Another(earlier, scene.DiskOn("a"), deleted), true, true},
	} {
		own := scene.New().Change(c.own, func(vmi *kubevirtv1.VirtualMachineInstance) { vmi.CreationTimestamp = metav1.NewTime(scene.Time) })
		got := claims.InUse(own.Instance, []view.ClaimUser{{Instance: c.other, Started: c.hasPod}})
		if (got != nil) != c.waits {
			t.Errorf("%s: %v, want that it waits: %v", name, got, c.waits)
		}
		how := map[bool]string{true: "in use by", false: "first for"}[c.hasPod]
		if got != nil && !strings.Contains(got.Message, "claim a is "+how+" VM db") {
			t.Errorf("%s: %q does not name claim and VM", name, got.Message)
		}
		if got != nil && strings.Contains(name, "share") != strings.Contains(got.Message, "if its disk is shareable in each of them") {
			t.Errorf("%s: %q", name, got.Message)
		}
	}
}

// TestWritersNeverWaitInACircle: whatever the claims, of all instances without pods one at least waits for none of the others.
func TestWritersNeverWaitInACircle(t *testing.T) {
	how := []func(*kubevirtv1.Disk, *kubevirtv1.Volume){func(*kubevirtv1.Disk, *kubevirtv1.Volume) {}, scene.ReadOnlyDisk, scene.Shareable}
	sets := [][]string{{"a"}, {"b"}, {"a", "b"}, {"b", "c"}, {"a", "c"}, {"c", "a", "b"}}
	reasons := []string{"", condition.ReasonClaimInUse, condition.ReasonClaimNotFound}
	var all []*kubevirtv1.VirtualMachineInstance
	for i, claims := range sets {
		for j, reason := range reasons {
			vmi := scene.Another(time.Duration((i*5+j*3)%4) * time.Second)
			vmi.UID, vmi.Name = types.UID(rune('a'+i*len(reasons)+j)), string(rune('a'+i*len(reasons)+j))
			for k, claim := range claims {
				scene.DiskOn(claim, how[(i+j+k)%len(how)])(vmi)
			}
			if reason != "" {
				scene.WaitingFor(reason)(vmi)
			}
			all = append(all, vmi)
		}
	}
	for len(all) > 0 {
		free := slices.IndexFunc(all, func(vmi *kubevirtv1.VirtualMachineInstance) bool {
			var others []view.ClaimUser
			for _, other := range all {
				if other != vmi {
					others = append(others, view.ClaimUser{Instance: other, Passed: len(all)%3 == 0 && other.UID > vmi.UID})
				}
			}
			return claims.InUse(vmi, others) == nil
		})
		if free < 0 {
			t.Fatalf("%d instances wait for each other", len(all))
		}
		all = slices.Delete(all, free, free+1)
	}
}

// TestPodClaims: a VM's pod uses its claims, and so does one that fills claims; others' pods are not looked at.
func TestPodClaims(t *testing.T) {
	p := scene.New().WithPod().Pod.Pod
	v := corev1.Volume{Name: "data"}
	v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}
	p.Spec.Volumes = append(p.Spec.Volumes, v)
	for app, want := range map[string]bool{contract.LabelAppLauncher: true, contract.LabelAppImporter: true, "nginx": false} {
		p.Labels[contract.LabelApp] = app
		if got := slices.Contains(claims.OfPod(p), "data"); got != want {
			t.Errorf("%s: uses its claim %v, want %v", app, got, want)
		}
	}
}
