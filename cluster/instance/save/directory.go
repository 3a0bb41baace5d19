package save

import (
	"strings"
	"time"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/condition"
)

// directoryTime is how the time is written in the name of an image's directory, and
// directoryName bounds the VM's name in it.
const (
	directoryTime = "20060102T150405Z"
	directoryName = 200
)

// directoryPrefix is what the names of all directories of a VM's images begin with.
func directoryPrefix(vm string) string { return "restore-" + condition.Clip(vm, directoryName) + "-" }

// ours: the directory was named here for an image of this VM.
func ours(directory, vm string) bool {
	at, is := strings.CutPrefix(directory, directoryPrefix(vm))
	_, err := time.Parse(directoryTime, at)
	return is && err == nil
}

// RecordedTarget is the directory that a status has for a volume.
func RecordedTarget(s *kubevirtv1.VirtualMachineInstanceStatus, volume string) string {
	for i := range s.VolumeStatus {
		if w := &s.VolumeStatus[i]; w.Name == volume && w.HibernationInfo != nil {
			return w.HibernationInfo.TargetFileName
		}
	}
	return ""
}
