package claimwatch

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmlet/vmlet/cluster/claimuse"
	"github.com/vmlet/vmlet/cluster/podend"
	"github.com/vmlet/vmlet/contract"
)

// Use is what is known of a claim since a save of a VM whose disk is on it began.
type Use struct {
	Namespace string `json:"namespace"`
	// VM is the name of the VM, and Instance the UID of the instance that is saved.
	VM       string    `json:"vm"`
	Instance types.UID `json:"instance"`
	// Directory is that of the memory image: each save has its own.
	Directory string `json:"directory"`
	// Claim is the claim's name, ClaimUID its UID and Volume its PersistentVolume.
	Claim    string    `json:"claim"`
	ClaimUID types.UID `json:"claimUID"`
	Volume   string    `json:"volume"`
	// Since is when the save began.
	Since time.Time `json:"since"`
	// By is the first pod that has used the claim since; empty: none is known.
	By string `json:"by,omitempty"`
	// Gap is a time in which pods were not watched; nil: there was none.
	Gap *Gap `json:"gap,omitempty"`
}

// Gap is a time in which pods may have come and gone without being seen.
type Gap struct {
	From  time.Time `json:"from"`
	Until time.Time `json:"until"`
}

// open: the claim is unused as far as is known, and that has to be watched.
func (u *Use) open() bool { return u.By == "" && u.Gap == nil }

// record is what outlives a controller. Position and Uses belong together: what pods did up to
// Position is in Uses.
type record struct {
	// Writer is the process that wrote it.
	Writer string `json:"writer"`
	// Position is the resource version of pods up to which they have been watched; empty: they are
	// not watched.
	Position string `json:"position,omitempty"`
	// Seen is when Position was reached.
	Seen time.Time `json:"seen"`
	Uses []*Use    `json:"uses,omitempty"`
}

const (
	// maxRecord bounds a record in bytes: a ConfigMap takes 1 MiB. What is in it can always be written.
	maxRecord = 900 << 10
	// share is the part of the room that others leave which a namespace may take, as a divisor: 20
	// namespaces that take all that they may leave room for another's claim.
	share = 4
	// growth is more than what is added to a use when more becomes known of it: the name of a pod, or
	// two times.
	growth = 400
)

func (r *record) encode() (string, error) {
	text, err := json.Marshal(r)
	return string(text), err
}

// room is an error if a namespace's claims can't be watched as well.
func (r *record) room(namespace string, more []*Use) error {
	free, own, claims := maxRecord, 0, 0
	for _, u := range r.Uses {
		if u.Namespace != namespace {
			free -= u.size()
			continue
		}
		own += u.size()
		claims++
	}
	for _, u := range more {
		own += u.size()
	}
	if own <= free/share {
		return nil
	}
	return fmt.Errorf("%d claims of saved VMs of namespace %s are watched, and there is no room for more: resume some of these VMs, or keep their disks on claims with volumeMode Filesystem", claims, namespace)
}

// size bounds what a use takes of the record.
func (u *Use) size() int {
	text, err := json.Marshal(u)
	if err != nil {
		return maxRecord
	}
	return len(text) + growth
}

func decode(text string) (r record, err error) {
	if text == "" {
		return r, nil
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return record{}, err
	}
	r.Uses = slices.DeleteFunc(r.Uses, func(u *Use) bool { return u == nil })
	return r, nil
}

// watches: some claim has to be watched.
func (r *record) watches() bool { return slices.ContainsFunc(r.Uses, (*Use).open) }

// of are the uses of the claims of one save.
func (r *record) of(namespace, directory string) (uses []Use) {
	for _, u := range r.Uses {
		if u.Namespace == namespace && u.Directory == directory {
			uses = append(uses, *u)
		}
	}
	return uses
}

// see notes that a pod was seen, and returns the VMs whose disks it has used.
func (r *record) see(p *corev1.Pod) (vms []types.NamespacedName) {
	for _, u := range r.Uses {
		if u.open() && u.usedBy(p) {
			u.By = p.Name
			vms = append(vms, types.NamespacedName{Namespace: u.Namespace, Name: u.VM})
		}
	}
	return vms
}

// lose notes that pods were not watched from Seen on until now.
func (r *record) lose(now time.Time) (vms []types.NamespacedName) {
	for _, u := range r.Uses {
		if u.open() {
			u.Gap = &Gap{From: r.Seen, Until: now}
			vms = append(vms, types.NamespacedName{Namespace: u.Namespace, Name: u.VM})
		}
	}
	r.Position = ""
	return vms
}

// usedBy: a pod uses the claim, and is not the VM's own: neither that of the instance which is saved
// nor the one that goes on from its image: only one ever does.
func (u *Use) usedBy(p *corev1.Pod) bool {
	return p.Namespace == u.Namespace && p.Spec.NodeName != "" && names(p, u.Claim) && !podend.Pod(p) && !u.own(p)
}

func (u *Use) own(p *corev1.Pod) bool {
	switch claimuse.InstanceOf(p) {
	case "":
		return false
	case u.Instance:
		return true
	}
	image := contract.HibernationFolder + "/" + u.Directory
	return slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool {
		return c.Name == contract.ContainerCompute && (slices.Contains(c.Command, image) || slices.Contains(c.Args, image))
	})
}

// names: the pod mounts the claim. A pod's ephemeral volume has a claim of the pod's and the volume's
// names.
func names(p *corev1.Pod, claim string) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim ||
			v.Ephemeral != nil && p.Name+"-"+v.Name == claim
	})
}
