package pool

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	poolv1 "github.com/vmlet/vmlet/api/pool/v1beta1"
)

const (
	// defaultPreserved is how many members' state is kept at most: as many as are made in one go.
	defaultPreserved = 250
	// saves is how often a VM may fail to be saved before its disks alone are kept.
	saves = 3
	// resumes is how often a VM may fail to go on before it boots instead.
	resumes = 3
)

// returnClaims gives members the disks that were kept for them.
func returnClaims(o state, d *decision) {
	of := make(map[int32]member)
	for _, m := range o.serving() {
		if name := memberName(o.pool.Name, m.index); name == m.vm.Name {
			of[m.index] = m
		}
	}
	for _, c := range o.claims {
		if m, is := of[c.index]; is {
			d.do(returnClaim{c, m})
		}
	}
}

// preserve looks after what is kept of members scaled in.
func preserve(o state, newest revision, d *decision) {
	for _, m := range o.members {
		switch {
		case m.leaving():
		case m.preserved():
			sleep(o, m, newest, d)
		default:
			boot(m, d)
		}
	}
	own := o.pool.Spec.Preservation == nil || o.pool.Spec.Preservation.OnPoolDeletion != poolv1.RetainPreserved
	for _, c := range o.claims {
		if c.owned != own && !o.returned(c) && !d.returns(c) {
			d.do(ownClaim{c, own})
		}
	}
	drop(o, d)
}

// returned: a member has its index, and gets it.
func (o state) returned(c claim) bool {
	return slices.ContainsFunc(o.members, func(m member) bool { return m.index == c.index && !m.preserved() && !m.leaving() })
}

// returns: a member gets it by this decision.
func (d *decision) returns(c claim) bool {
	return slices.ContainsFunc(d.actions, func(a action) bool {
		r, is := a.(returnClaim)
		return is && r.claim == c
	})
}

// sleep looks after a member that hibernates. One whose memory can't be kept is kept by its disks.
func sleep(o state, m member, newest revision, d *decision) {
	proactive, _, _ := o.updateBy()
	s := m.vm.Status.HibernationStatus
	var why string
	switch {
	case m.unseen():
		return // the VM's controller has not begun
	case s != nil && s.Phase == kubevirtv1.HibernationFailed && s.Failures >= saves:
		why = "its memory could not be saved: " + s.Message
	case !m.vm.Status.Created && !m.saved():
		why = "its guest had ended before its memory was saved"
	case m.saved() && proactive && m.revision() != newest.name:
		why = "its memory is of a guest with an older template"
	default:
		return
	}
	d.do(deleteMember{m, true, warning(reasonPreserveFailed, "Of VM %s the disks alone are kept: %s", m.vm.Name, why), false})
}

// boot has a member start from its disks that the pool has woken, and that does not go on from its memory.
func boot(m member, d *decision) {
	rs, start := m.vm.Status.ResumeStatus, m.vm.Spec.StartStrategy
	if rs == nil || rs.Phase != kubevirtv1.ResumeFailed || rs.Failures < resumes || start == nil || *start != kubevirtv1.StartRestore ||
		m.vm.Status.Created || m.strategy() == kubevirtv1.RunStrategyHibernate {
		return
	}
	to := m.vm.DeepCopy()
	to.Spec.StartStrategy = new(kubevirtv1.StartBoot)
	d.do(changeMember{m, to, warning(reasonResuming, "VM %s boots, as it does not go on from its saved memory: %s: %s", m.vm.Name, rs.Reason, rs.Message)})
}

// kept is the state of one member that was scaled in.
type kept struct {
	poolv1.PreservedMember
	claims []claim
	member *member
}

// preserved returns all state that is kept of members that are there no more, by index.
func (o state) preserved() (all []kept) {
	at := make(map[int32]*kept)
	for i, m := range o.members {
		if m.preserved() && !m.leaving() {
			at[m.index] = &kept{member: &o.members[i], PreservedMember: poolv1.PreservedMember{
				Index: m.index, Name: m.vm.Name, State: poolv1.PreserveMemory, Since: since(m.vm), Revision: m.revision(),
			}}
		}
	}
	for _, c := range o.claims {
		if o.returned(c) {
			continue
		}
		k := at[c.index]
		if k == nil {
			k = &kept{PreservedMember: poolv1.PreservedMember{
				Index: c.index, Name: memberName(o.pool.Name, c.index), State: poolv1.PreserveDisks, Since: c.since, Revision: c.revision,
			}}
			at[c.index] = k
		}
		k.claims, k.Claims = append(k.claims, c), append(k.Claims, c.name)
	}
	for _, k := range at {
		slices.Sort(k.Claims)
		all = append(all, *k)
	}
	slices.SortFunc(all, func(a, b kept) int { return cmp.Compare(a.Index, b.Index) })
	return all
}

// drop deletes what is kept for too long, and the oldest of what is too much.
func drop(o state, d *decision) {
	limit, ttl := defaultPreserved, (*metav1.Duration)(nil)
	if p := o.pool.Spec.Preservation; p != nil {
		ttl = p.TTL
		if p.MaxPreserved != nil {
			limit = int(*p.MaxPreserved)
		}
	}
	o.claims = slices.DeleteFunc(slices.Clone(o.claims), d.returns)
	all := o.preserved()
	slices.SortFunc(all, func(a, b kept) int { return a.Since.Compare(b.Since.Time) })
	for i, k := range all {
		end := time.Time{}
		if ttl != nil {
			end = k.Since.Add(ttl.Duration)
		}
		switch {
		case i < len(all)-limit:
			k.delete(d, "the pool keeps the state of %d members at most", limit)
		case ttl == nil:
		case !o.now.Before(end):
			k.delete(d, "it was kept for %v", ttl.Duration)
		default:
			d.look(end)
		}
	}
}

func (k kept) delete(d *decision, why string, args ...any) {
	e := normal(reasonPreservedReleased, "Deleted what was kept of VM "+k.Name+": "+why, args...)
	if k.member != nil {
		d.do(deleteMember{*k.member, false, e, false})
	}
	for _, c := range k.claims {
		d.do(deleteClaim{c, e})
	}
}
