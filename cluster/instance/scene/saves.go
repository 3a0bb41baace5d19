package scene

import (
	"path"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/cluster/launcher"
	"github.com/vmlet/vmlet/cluster/saves"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

const (
	Paused = nodev1.State_STATE_PAUSED
	SavesV = nodev1.State_STATE_SAVING

	Image     = "00000000-0000-4000-8000-00000000000a"
	Directory = "restore-web-20260102T030400Z"
)

// Saving is a VM that runs and is to be saved to the claim "memory", which its pod mounts from the
// start if mounted.
func Saving(mounted bool, change ...func(*view.Pod)) Scene {
	s := New().Change(OnMemory("memory"), StopBy(kubevirtv1.HibernateSave))
	if mounted {
		s = s.WithPod(change...)
	} else {
		volumes := s.Instance.Spec.UtilityVolumes
		s.Instance.Spec.UtilityVolumes = nil
		s = s.WithPod(change...)
		s.Instance.Spec.UtilityVolumes = volumes
	}
	s.Claims["memory"] = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "memory"}}
	return s.RecordedAs(kubevirtv1.PhaseRunning)
}

// Runs is a pod whose guest is in a state by its agent's report.
func Runs(state nodev1.State) func(*view.Pod) {
	return func(p *view.Pod) {
		RunsSince(time.Hour)(p)
		Heard(state)(p)
	}
}

// Called has a call be known.
func (s Scene) Called(change ...func(*saves.Call)) Scene {
	s.Call = &saves.Call{State: saves.Running, Request: saves.Request{
		Pod: s.Pod.Name, UID: s.Pod.UID, Node: s.Pod.Spec.NodeName, Directory: path.Join(contract.HibernationFolder, Directory),
	}}
	for _, f := range change {
		f(s.Call)
	}
	return s
}

func ToDirectory(name string) func(*saves.Call) {
	return func(c *saves.Call) { c.Directory = name }
}

func QueuedBehind(n int) func(*saves.Call) {
	return func(c *saves.Call) { c.State, c.Ahead = saves.Queued, n }
}

func Barred(c *saves.Call) { c.Barred = true }

func Aside(c *saves.Call) { c.Aside = true }

func FailedAgo(ago time.Duration, failures int, err error) func(*saves.Call) {
	return func(c *saves.Call) { c.State, c.Err, c.Failures, c.At = saves.Ended, err, failures, Time.Add(-ago) }
}

func DoneAgo(ago time.Duration) func(*saves.Call) {
	return func(c *saves.Call) { c.State, c.At = saves.Ended, Time.Add(-ago) }
}

func Unsure(c *saves.Call) { c.Unsure = true }

func Cancelled(c *saves.Call) { c.Cancelled = true }

func Suspending(c *saves.Call) { c.Directory = "" }

func OfAnotherPod(c *saves.Call) { c.UID = "another" }

func ToSuspend(s Scene) Scene { return s.Change(StopBy(kubevirtv1.HibernateSuspendToDisk)) }

func Unasked(s Scene) Scene { return s.Change(StopBy("")) }

func OfBlock(s Scene) Scene {
	s.Claims["memory"].Spec.VolumeMode = new(corev1.PersistentVolumeBlock)
	return s
}

func NoClaim(s Scene) Scene { delete(s.Claims, "memory"); return s }

func TheAPISaysNo(s Scene) Scene {
	s.Refused = &condition.Fault{Reason: condition.ReasonAttachFailed, Message: "quota"}
	return s
}

func (s Scene) LeavesClaim() Scene { s.Instance.Spec.UtilityVolumes = nil; return s }

// Forgotten has the claim gone from the cache, while the status has it.
func Forgotten(s Scene) Scene {
	block := corev1.PersistentVolumeBlock
	s.Instance.Status.VolumeStatus = append(s.Instance.Status.VolumeStatus, kubevirtv1.VolumeStatus{
		Name: "data", PersistentVolumeClaimInfo: &kubevirtv1.PersistentVolumeClaimInfo{ClaimName: "pg", VolumeMode: &block},
	})
	delete(s.Claims, "pg")
	return s
}

// OnBlock has the guest have a disk on the claim "pg" with volumeMode Block.
func OnBlock(s Scene) Scene {
	s.Instance.Spec.Domain.Devices.Disks = append(s.Instance.Spec.Domain.Devices.Disks, kubevirtv1.Disk{Name: "data"})
	s.Instance.Spec.Volumes = append(s.Instance.Spec.Volumes, kubevirtv1.Volume{Name: "data", PersistentVolumeClaim: &kubevirtv1.PersistentVolumeClaimSource{
		PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "pg"},
	}})
	block := corev1.PersistentVolumeBlock
	s.Claims["pg"] = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "pg"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeMode: &block}}
	return s
}

// AttachedBy has a pod that attaches the claim "memory".
func (s Scene) AttachedBy(change ...func(*corev1.Pod)) Scene {
	p := launcher.Attachment(s.Instance, s.Pod.Pod, "memory", configuration.Default())
	p.UID, p.CreationTimestamp = "hp-1", metav1.NewTime(Time)
	for _, f := range change {
		f(p)
	}
	s.Attachments = append(s.Attachments, p)
	return s
}

// OfClaim has a pod attach another claim.
func OfClaim(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for _, v := range p.Spec.Volumes {
			if v.PersistentVolumeClaim != nil {
				v.PersistentVolumeClaim.ClaimName = name
			}
		}
	}
}

func Since(ago time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(Time.Add(-ago)) }
}

func Placed(p *corev1.Pod) { p.Spec.NodeName = "node-a" }

func Serving(p *corev1.Pod) {
	Placed(p)
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "attach", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
}

func Elsewhere(p *corev1.Pod) {
	Serving(p)
	p.Spec.NodeName = "node-b"
}

func Unplaceable(p *corev1.Pod) {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "1 node has no room"}}
}

// Waits: its container does not start, for that reason.
func Waits(reason string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		Placed(p)
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "attach", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}
	}
}

// MountedBy has the claim's mount be another container's, or at another path.
func MountedBy(container, at string) func(*view.Pod) {
	return func(p *view.Pod) {
		for i := range p.Spec.Containers {
			c := &p.Spec.Containers[i]
			for j := range c.VolumeMounts {
				if c.Name == contract.ContainerCompute && c.VolumeMounts[j].MountPath == contract.HibernationFolder {
					c.Name, c.VolumeMounts[j].MountPath = container, at
				}
			}
		}
	}
}

func OnItsWay(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: Time} }

var ErrLost = status.Error(codes.Unavailable, "EOF")

var ErrSave = status.Error(codes.Internal, "QEMU said no")

// SavedSince is a guest that went on from its image and may have been saved to another since.
func SavedSince(claim, directory string) Scene {
	s := Resumed(RunsSince(time.Hour)).RecordedAs(kubevirtv1.PhaseRunning)
	s.Instance.Status.VolumeStatus = []kubevirtv1.VolumeStatus{{Name: "hibernate-memory", HibernationInfo: &kubevirtv1.HibernationInfo{ClaimName: claim, TargetFileName: directory}}}
	return s
}

// ToNothing has the status name a claim and no directory.
func ToNothing(s Scene) Scene {
	s = ToTarget(s)
	s.Instance.Status.VolumeStatus[0].HibernationInfo.TargetFileName = ""
	return s
}

func Troubled(s Scene) Scene {
	s.AttachTrouble = &condition.Fault{Reason: condition.ReasonFailedMount, Message: "no such volume"}
	return s
}

// ToTarget has the status name where the guest is saved to.
func ToTarget(s Scene) Scene {
	s.Instance.Status.VolumeStatus = []kubevirtv1.VolumeStatus{{Name: "hibernate-memory", HibernationInfo: &kubevirtv1.HibernationInfo{ClaimName: "memory", TargetFileName: Directory}}}
	return s
}

// ToTwo is toTarget with another claim beside it, which has another directory.
func ToTwo(s Scene, directory string) Scene {
	s = ToTarget(s)
	other := kubevirtv1.VolumeStatus{Name: "hibernate-next", HibernationInfo: &kubevirtv1.HibernationInfo{ClaimName: "next", TargetFileName: "restore-web-20260101T000000Z"}}
	s.Instance.Status.VolumeStatus[0].HibernationInfo.TargetFileName = directory
	s.Instance.Status.VolumeStatus = append([]kubevirtv1.VolumeStatus{other}, s.Instance.Status.VolumeStatus...)
	return s.Change(OnMemory("next"))
}

// SavedTo are a shim's last words about a VM that was saved.
func SavedTo(id, folder string) string {
	return string(contract.Ending{Reason: contract.GuestSaved, Image: id, Directory: folder, Message: "the guest was saved"}.Encode())
}

// EndedWith are a shim's last words.
func EndedWith(reason, message string) string {
	return string(contract.Ending{Reason: reason, Message: message}.Encode())
}

// SavedBy has an agent's report be that the VM was saved.
func SavedBy(id, folder string) func(*view.Pod) {
	return func(p *view.Pod) {
		EndedBy(nodev1.EndReason_END_REASON_SAVED)(p)
		p.Report.VM.Status.Image = &nodev1.ImageReference{Path: folder, ImageId: id}
		p.Report.VM.Status.Hypervisor, p.Report.VM.Status.Vmm = "kvm", &nodev1.Vmm{Name: "qemu", Version: "10.0.2"}
	}
}

// Resumed is a VM that goes on from an image.
func Resumed(change ...func(*view.Pod)) Scene {
	return New().Change(OnMemory("memory"), func(v *kubevirtv1.VirtualMachineInstance) {
		v.Spec.StartStrategy = new(kubevirtv1.StartRestore)
		v.Spec.RestoreFrom = &kubevirtv1.SavedImage{
			ID: Image, ClaimName: "memory", Directory: Directory, NodeName: "node-b",
			NodeSelector: map[string]string{corev1.LabelArchStable: "amd64"},
		}
	}).WithPod(change...).RecordedAs(kubevirtv1.PhaseScheduled)
}

func StopBy(strategy string) func(*kubevirtv1.VirtualMachineInstance) {
	return func(vmi *kubevirtv1.VirtualMachineInstance) { vmi.Spec.StopStrategy = strategy }
}

// OnMemory gives an instance the volume for its memory.
func OnMemory(claim string) func(*kubevirtv1.VirtualMachineInstance) {
	return func(vmi *kubevirtv1.VirtualMachineInstance) {
		v := kubevirtv1.UtilityVolume{Name: "hibernate-" + claim, Type: new(kubevirtv1.UtilityHibernation)}
		v.ClaimName = claim
		vmi.Spec.UtilityVolumes = append(vmi.Spec.UtilityVolumes, v)
	}
}
