// Package claimuse says how VMs and imports use the disks on claims, and which of them can't have one at the same time: a
// disk has one writer, or several that share it, and what is only read has no writer. It must not know who runs where. Start
// reading at Use.
package claimuse

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/launcher"
	"github.com/vmlet/vmlet/cluster/podend"
	"github.com/vmlet/vmlet/contract"
)

// Use is how one VM, or one import, uses the disk on a claim.
type Use struct {
	Claim string
	// Writes: it may write to the disk. Else it reads what must not change.
	Writes bool
	// Shareable: others may write to the disk at the same time that share it, too.
	Shareable bool
}

// Excludes says whether the other use has to wait for the end of this one.
func (u Use) Excludes(other Use) bool {
	return u.Claim == other.Claim && (u.Writes || other.Writes) && !(u.Shareable && other.Shareable)
}

// OfInstance are the uses of an instance's disks, one for each claim, in the order of the volumes.
func OfInstance(vmi *kubevirtv1.VirtualMachineInstance) (uses []Use) {
	for i := range vmi.Spec.Volumes {
		v := &vmi.Spec.Volumes[i]
		name := convert.ClaimName(v)
		at := slices.IndexFunc(vmi.Spec.Domain.Devices.Disks, func(d kubevirtv1.Disk) bool { return d.Name == v.Name })
		if name == "" || at < 0 {
			continue
		}
		d := &vmi.Spec.Domain.Devices.Disks[at]
		use := Use{Claim: name, Writes: writes(v, d), Shareable: convert.Shares(d, v)}
		if known := slices.IndexFunc(uses, func(u Use) bool { return u.Claim == name }); known >= 0 {
			u := &uses[known]
			u.Writes, u.Shareable = u.Writes || use.Writes, u.Shareable && use.Shareable
			continue
		}
		uses = append(uses, use)
	}
	return uses
}

// Fills says whether a pod fills a claim, maybe from another.
func Fills(p *corev1.Pod) bool { return p.Labels[contract.LabelApp] == contract.LabelAppImporter }

// OfPod are the uses of a pod: it may write to what it does not mount read-only, unless it is what the pod copies, or vmi says
// how its guest uses the disk. vmi is the instance of a VM's pod; nil: it is gone, or the pod is no VM's.
func OfPod(p *corev1.Pod, vmi *kubevirtv1.VirtualMachineInstance) (uses []Use) {
	var known []Use
	if vmi != nil {
		known = OfInstance(vmi)
	}
	for _, v := range p.Spec.Volumes {
		c := v.PersistentVolumeClaim
		if c == nil {
			continue
		}
		if at := slices.IndexFunc(known, func(u Use) bool { return u.Claim == c.ClaimName }); at >= 0 {
			uses = append(uses, known[at])
			continue
		}
		uses = append(uses, Use{Claim: c.ClaimName, Writes: !c.ReadOnly && !(Fills(p) && v.Name == launcher.VolumeSource)})
	}
	return uses
}

// Ended says whether a pod uses its claims no more. The finalizer of a VM's is taken from it then. Anyone who makes pods can
// give his own a VM's label, and is not believed for that.
func Ended(p *corev1.Pod) bool {
	switch {
	case p.Labels[contract.LabelApp] == contract.LabelAppLauncher && slices.Contains(p.Finalizers, contract.FinalizerPod):
		return false
	case InstanceOf(p) != "":
		return true
	}
	return podend.Pod(p)
}

// InstanceOf is the instance whose pod it is; empty: it is no VM's, or its owner was taken from it. The admission policy
// vmlet-launcher lets no other pod have the label and such an owner.
func InstanceOf(p *corev1.Pod) types.UID {
	owner := metav1.GetControllerOf(p)
	if owner == nil || owner.APIVersion != kubevirtv1.Group+"/"+kubevirtv1.Version || owner.Kind != "VirtualMachineInstance" ||
		p.Labels[contract.LabelApp] != contract.LabelAppLauncher || p.Labels[contract.LabelCreatedBy] != string(owner.UID) {
		return ""
	}
	return owner.UID
}

// User is a pod whose use of a claim excludes another one; empty: there is none. instances are those of VMs' pods.
func User(pods []corev1.Pod, instances []kubevirtv1.VirtualMachineInstance, use Use) string {
	of := make(map[types.UID]*kubevirtv1.VirtualMachineInstance)
	for i := range instances {
		of[instances[i].UID] = &instances[i]
	}
	for i := range pods {
		p := &pods[i]
		if !Ended(p) && slices.ContainsFunc(OfPod(p, of[InstanceOf(p)]), use.Excludes) {
			return p.Name
		}
	}
	return ""
}

// writes: what the guest writes to the disk is on the claim.
func writes(v *kubevirtv1.Volume, d *kubevirtv1.Disk) bool {
	switch {
	case v.Ephemeral != nil, v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly:
		return false
	}
	return d.CDROM == nil && (d.Disk == nil || !d.Disk.ReadOnly)
}

// Locks are the uses of pods that are being made: who makes a pod holds them from the last look at what is there
// until the pod is. The zero value has none. Its methods may be called concurrently.
type Locks struct {
	mu   sync.Mutex
	held map[*lock]bool
}

// lock has the uses of one pod.
type lock struct {
	namespace string
	uses      []Use
}

// Begin takes all uses of claims of a namespace, or none if another pod that is being made excludes one of them. done
// gives them back.
func (l *Locks) Begin(namespace string, uses []Use) (done func(), alone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for other := range l.held {
		if other.namespace == namespace && slices.ContainsFunc(uses, func(u Use) bool { return slices.ContainsFunc(other.uses, u.Excludes) }) {
			return nil, false
		}
	}
	if l.held == nil {
		l.held = make(map[*lock]bool)
	}
	own := &lock{namespace, uses}
	l.held[own] = true
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.held, own)
	}, true
}
