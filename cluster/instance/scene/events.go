package scene

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Said is an event of a pod, some seconds before now.
func Said(ago int, kind, reason, message string) corev1.Event {
	return corev1.Event{Type: kind, Reason: reason, Message: message, LastTimestamp: metav1.NewTime(Time.Add(-time.Duration(ago) * time.Second))}
}

const (
	NoSecret    = `MountVolume.SetUp failed for volume "vmlet-userdata-0" : secret "web-seed" not found`
	NoConfigMap = `MountVolume.SetUp failed for volume "conf" : configmap "conf.d" not found`
)
