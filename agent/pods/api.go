package pods

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/vmlet/vmlet/contract"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// Pods are those of this node, as the API server has them. Its methods may be
// called concurrently.
type Pods struct {
	mu      sync.Mutex
	byUID   map[types.UID]*corev1.Pod
	changed chan struct{} // closed, and another made, at each change
	// synced says whether all are known that were there at first; nil: Run has not begun.
	synced func() bool
}

// New returns the pods of a node. None is known before Run.
func New() *Pods {
	return &Pods{byUID: make(map[types.UID]*corev1.Pod), changed: make(chan struct{})}
}

// Run follows the API server until ctx ends. While it doesn't answer, what is known
// stays.
func (p *Pods) Run(ctx context.Context, source cache.ListerWatcher) {
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: source,
		ObjectType:    &corev1.Pod{},
		Transform:     slim,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { p.put(o) },
			UpdateFunc: func(_, o any) { p.put(o) },
			DeleteFunc: p.remove,
		},
	})
	p.mu.Lock()
	p.synced = informer.HasSynced
	p.mu.Unlock()
	informer.RunWithContext(ctx)
}

// Synced says whether the API server has said which pods there are. Before, one that is not
// known may be there.
func (p *Pods) Synced() bool {
	p.mu.Lock()
	synced := p.synced
	p.mu.Unlock()
	return synced != nil && synced()
}

// slim keeps of a pod only what the agent reads: a node may have hundreds, and each
// takes some 10 KiB as a whole. Code that reads more of a pod adds it here.
func slim(o any) (any, error) {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
			ResourceVersion: pod.ResourceVersion, CreationTimestamp: pod.CreationTimestamp,
			DeletionTimestamp: pod.DeletionTimestamp, Labels: slimLabels(pod.Labels),
		},
		Spec: corev1.PodSpec{
			RestartPolicy: pod.Spec.RestartPolicy, TerminationGracePeriodSeconds: pod.Spec.TerminationGracePeriodSeconds,
			Containers: slimContainers(pod.Spec.Containers), InitContainers: slimContainers(pod.Spec.InitContainers),
			EphemeralContainers: make([]corev1.EphemeralContainer, len(pod.Spec.EphemeralContainers)), // whether there are any
		},
		Status: corev1.PodStatus{
			ContainerStatuses:     slimStatuses(pod.Status.ContainerStatuses),
			InitContainerStatuses: slimStatuses(pod.Status.InitContainerStatuses),
		},
	}, nil
}

func slimLabels(all map[string]string) map[string]string {
	if to, has := all[contract.LabelAttachedTo]; has {
		return map[string]string{contract.LabelAttachedTo: to, contract.LabelApp: all[contract.LabelApp]}
	}
	return nil
}

// maxImage is more than the name of an image has, in bytes.
const maxImage = 512

func slimContainers(all []corev1.Container) []corev1.Container {
	slim := make([]corev1.Container, len(all))
	for i, c := range all {
		slim[i] = corev1.Container{
			Name: c.Name, RestartPolicy: c.RestartPolicy, RestartPolicyRules: c.RestartPolicyRules,
			Resources:     corev1.ResourceRequirements{Limits: c.Resources.Limits},
			VolumeDevices: c.VolumeDevices,
		}
		if c.Name == contract.ContainerStack { // whose image its node speaks of
			slim[i].Image = c.Image[:min(len(c.Image), maxImage)]
		}
		for _, m := range c.VolumeMounts {
			if m.Name == contract.VolumeName {
				slim[i].VolumeMounts = []corev1.VolumeMount{{Name: contract.VolumeName}}
			}
		}
	}
	return slim
}

func slimStatuses(all []corev1.ContainerStatus) []corev1.ContainerStatus {
	slim := make([]corev1.ContainerStatus, len(all))
	for i, s := range all {
		slim[i] = corev1.ContainerStatus{Name: s.Name, ContainerID: s.ContainerID}
	}
	return slim
}

func (p *Pods) put(o any) {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byUID[pod.UID] = pod
	p.tell()
}

func (p *Pods) remove(o any) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.byUID, pod.UID)
	p.tell()
}

// tell wakes those who wait; p.mu is held.
func (p *Pods) tell() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// Container waits until the API server has a pod, and says which of its containers
// has the volume. Only if several have it the runtime's id decides, which is in the
// pod's status a second or two after the container's start. The pod has what slim keeps, and
// is not to be changed.
func (p *Pods) Container(ctx context.Context, uid types.UID, id string) (*corev1.Pod, *corev1.Container, error) {
	for {
		p.mu.Lock()
		pod, changed := p.byUID[uid], p.changed
		p.mu.Unlock()
		c := mounting(pod)
		if c == nil {
			c = containerOf(pod, id)
		}
		if c != nil {
			return pod, c, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if pod == nil {
				return nil, nil, fmt.Errorf("the API server has no pod %s on this node: %w", uid, context.Cause(ctx))
			}
			return nil, nil, fmt.Errorf("pod %s/%s has no container %.12s in its status: %w", pod.Namespace, pod.Name, id, context.Cause(ctx))
		}
	}
}

// Pod waits until the API server has a pod on this node. It has what slim keeps, and is not to
// be changed.
func (p *Pods) Pod(ctx context.Context, uid types.UID) (*corev1.Pod, error) {
	for {
		p.mu.Lock()
		pod, changed := p.byUID[uid], p.changed
		p.mu.Unlock()
		if pod != nil {
			return pod, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("the API server has no pod %.64q on this node: %w", uid, context.Cause(ctx))
		}
	}
}

// Attachment waits until the API server has a pod on this node that attaches a volume to another one of its
// namespace, that has a started container, and that is not one of those that were refused. It has what slim
// keeps, and is not to be changed.
func (p *Pods) Attachment(ctx context.Context, namespace string, to types.UID, refused map[types.UID]bool) (*corev1.Pod, error) {
	for {
		p.mu.Lock()
		changed := p.changed
		for _, pod := range p.byUID {
			if pod.Namespace == namespace && AttachesTo(pod, to) && pod.DeletionTimestamp == nil && begun(pod) && !refused[pod.UID] {
				p.mu.Unlock()
				return pod, nil
			}
		}
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("no pod attaches a volume to pod %s: %w", to, context.Cause(ctx))
		}
	}
}

// AttachesTo says whether a pod's labels are those of one that attaches a volume to another.
func AttachesTo(pod *corev1.Pod, to types.UID) bool {
	return pod.Labels[contract.LabelApp] == contract.LabelAppAttachment && pod.Labels[contract.LabelAttachedTo] == string(to)
}

// begun: a container of the pod has been started.
func begun(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.ContainerID != "" })
}

// Gone waits until the API server has a pod no more on this node. It must have had it.
func (p *Pods) Gone(ctx context.Context, uid types.UID) error {
	for {
		p.mu.Lock()
		_, there := p.byUID[uid]
		changed := p.changed
		p.mu.Unlock()
		if !there {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// mounting is the only container that has the volume; nil: it isn't the only one.
func mounting(pod *corev1.Pod) *corev1.Container {
	if pod == nil {
		return nil
	}
	var found []*corev1.Container
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			if slices.ContainsFunc(containers[i].VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == contract.VolumeName }) {
				found = append(found, &containers[i])
			}
		}
	}
	if len(found) != 1 || len(pod.Spec.EphemeralContainers) > 0 {
		return nil
	}
	return found[0]
}

// containerOf finds a container by the end of its id: "containerd://ID".
func containerOf(pod *corev1.Pod, id string) *corev1.Container {
	if pod == nil {
		return nil
	}
	for _, group := range []struct {
		statuses   []corev1.ContainerStatus
		containers []corev1.Container
	}{{pod.Status.ContainerStatuses, pod.Spec.Containers}, {pod.Status.InitContainerStatuses, pod.Spec.InitContainers}} {
		for _, s := range group.statuses {
			if _, of, _ := strings.Cut(s.ContainerID, "://"); of != id || id == "" {
				continue
			}
			for i := range group.containers {
				if group.containers[i].Name == s.Name {
					return &group.containers[i]
				}
			}
		}
	}
	return nil
}

// StartsAgain says why the kubelet would start a container again that has ended
// well; empty: it would not.
func StartsAgain(pod *corev1.Pod, c *corev1.Container) string {
	for i, r := range c.RestartPolicyRules {
		if codes := r.ExitCodes; codes != nil &&
			slices.Contains(codes.Values, 0) == (codes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn) {
			return fmt.Sprintf("the container's restartPolicyRules[%d] is about exit code 0", i)
		}
	}
	if c.RestartPolicy != nil {
		if *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			return "the container's restartPolicy is Always"
		}
		return ""
	}
	if pod.Spec.RestartPolicy == corev1.RestartPolicyAlways || pod.Spec.RestartPolicy == "" {
		return "the pod's restartPolicy is Always"
	}
	return ""
}
