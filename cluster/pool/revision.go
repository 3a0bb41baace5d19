package pool

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	poolv1 "github.com/vmlet/vmlet/api/pool/v1beta1"
	"github.com/vmlet/vmlet/contract"
)

// revision is a template as it once was.
type revision struct {
	name   string
	number int64
	data   revisionData
}

// revisionData is what a ControllerRevision keeps: what members are made from.
type revisionData struct {
	Template       *poolv1.VirtualMachineTemplateSpec       `json:"virtualMachineTemplate"`
	NameGeneration *poolv1.VirtualMachinePoolNameGeneration `json:"nameGeneration,omitempty"`
}

// appends says whether names of Secrets and of ConfigMaps get the index.
func (d revisionData) appends() (secrets, configMaps bool) {
	n := d.NameGeneration
	if n == nil {
		return false, false
	}
	is := func(either, other *bool) bool { return either != nil && *either || other != nil && *other }
	return is(n.AppendIndexToSecretRefs, n.AppendPostfixToSecretReferences), is(n.AppendIndexToConfigMapRefs, n.AppendPostfixToConfigMapReferences)
}

// dataOf is what the pool's members are made from now. Where the first one's index is belongs to no member.
func dataOf(pool *poolv1.VirtualMachinePool) revisionData {
	d := revisionData{Template: pool.Spec.VirtualMachineTemplate}
	if n := pool.Spec.NameGeneration; n != nil {
		d.NameGeneration = n.DeepCopy()
		d.NameGeneration.StartOrdinal = 0
	}
	return d
}

func sameData(a, b revisionData) bool {
	as, ac := a.appends()
	bs, bc := b.appends()
	return as == bs && ac == bc && equality.Semantic.DeepEqual(a.Template, b.Template)
}

// revision returns the one of a name; nil: it is not there.
func (o state) revision(name string) *revision {
	for i := range o.revisions {
		if o.revisions[i].name == name {
			return &o.revisions[i]
		}
	}
	return nil
}

// newest returns the revision of the pool's present template, and whether it has to be made. The latest one
// alone is compared: after a template has been changed back, members have to be changed again.
func (o state) newest() (r revision, missing bool) {
	now, number := dataOf(o.pool), int64(1)
	if n := len(o.revisions); n > 0 {
		if last := o.revisions[n-1]; sameData(last.data, now) {
			return last, false
		} else {
			number = last.number + 1
		}
	}
	return revision{name: revisionName(o.pool, number), number: number, data: now}, true
}

// revisionName is a label's value, too: it has at most 63 characters. The pool's UID keeps revisions of an
// earlier pool of the name apart.
func revisionName(pool *poolv1.VirtualMachinePool, number int64) string {
	hash := fnv.New32a()
	hash.Write([]byte(pool.UID))
	return fmt.Sprintf("%.32s-%08x-%d", strings.ReplaceAll(pool.Name, ".", "-"), hash.Sum32(), number)
}

// object is the ControllerRevision of a revision.
func (r revision) object(pool *poolv1.VirtualMachinePool) (*appsv1.ControllerRevision, error) {
	raw, err := json.Marshal(r.data)
	if err != nil {
		return nil, err
	}
	c := &appsv1.ControllerRevision{Revision: r.number, Data: runtime.RawExtension{Raw: raw}}
	c.Namespace, c.Name = pool.Namespace, r.name
	c.Labels = map[string]string{contract.LabelPool: string(pool.UID)}
	c.OwnerReferences = []metav1.OwnerReference{ownedBy(pool)}
	return c, nil
}

// readRevision returns what a ControllerRevision keeps; no: it is none of the pool's.
func readRevision(c *appsv1.ControllerRevision, pool *poolv1.VirtualMachinePool) (r revision, is bool) {
	if !metav1.IsControlledBy(c, pool) {
		return r, false
	}
	r = revision{name: c.Name, number: c.Revision}
	return r, json.Unmarshal(c.Data.Raw, &r.data) == nil && r.data.Template != nil
}

// defaultHistory is how many revisions are kept that no member has, as of Deployments.
const defaultHistory = 10

// stale are the names of revisions that are kept no longer.
func (o state) stale() (names []string) {
	used := make(map[string]bool)
	for _, m := range o.members {
		used[m.revision()] = true
	}
	for _, c := range o.claims {
		used[c.revision] = true
	}
	limit := defaultHistory
	if n := o.pool.Spec.RevisionHistoryLimit; n != nil {
		limit = int(*n)
	}
	for _, r := range slices.Backward(o.revisions[:max(len(o.revisions)-1, 0)]) {
		if used[r.name] {
			continue
		}
		if limit--; limit < 0 {
			names = append(names, r.name)
		}
	}
	return names
}
