package hibernation

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

const (
	// longestClaim is the most bytes that the name of a claim has that is made here. Provisioners make
	// others of it, for directories among others, which are longer.
	longestClaim = 63
	// longestBefore is what earlier versions had in place of longestClaim: they kept 200 bytes of a VM's name.
	longestBefore = 221
)

// claimName is that of a claim that is made for a VM's memory. It follows from what it is for, so
// that the claim is not made twice.
func claimName(vm *kubevirtv1.VirtualMachine, what string, longest int) string {
	end := "-hibernate-" + digest(string(vm.UID)+"/"+what)
	return strings.TrimRight(vm.Name[:min(len(vm.Name), longest-len(end))], "-.") + end
}

func digest(text string) string {
	hash := sha256.Sum256([]byte(text))
	return hex.EncodeToString(hash[:5])
}

// VolumeName is that of the utility volume on a claim.
func VolumeName(claim string) string { return "hibernate-" + digest(claim) }

// KeptClaims are the names of those that a VM may have over its life. It has one of them: the other
// one takes its place when it is too small, or has an image that is discarded by a start. A VM with a
// long name may have one from an earlier version.
func KeptClaims(vm *kubevirtv1.VirtualMachine) (names []string) {
	for _, longest := range []int{longestClaim, longestBefore} {
		for _, what := range []string{"kept", "kept too"} {
			if name := claimName(vm, what, longest); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// OnceClaim is the name of a claim that is made for one hibernation.
func OnceClaim(vm *kubevirtv1.VirtualMachine, began metav1.Time) string {
	return claimName(vm, began.UTC().Format("20060102T150405Z"), longestClaim)
}

// NamedClaim is the claim that the VM's user has named, or empty.
func NamedClaim(vm *kubevirtv1.VirtualMachine) string {
	if s := vm.Spec.HibernateStrategy; s != nil {
		return s.ClaimName
	}
	return ""
}

func UtilityVolume(claim string) kubevirtv1.UtilityVolume {
	kind := kubevirtv1.UtilityHibernation
	return kubevirtv1.UtilityVolume{
		Name: VolumeName(claim), Type: &kind,
		PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}
}

func forMemory(v kubevirtv1.UtilityVolume) bool {
	return v.Type != nil && *v.Type == kubevirtv1.UtilityHibernation
}
