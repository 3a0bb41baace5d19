// Package resourcename has the names of Kubernetes' extended resources, which
// devices are asked for by: "devices.kubevirt.io/kvm".
package resourcename

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
)

// quota is what the name of a resource has before it in a quota. A name must be
// one with it, too.
const quota = "requests."

// Check says why Kubernetes would refuse an extended resource of this name. The
// rule is the kubelet's and the API server's (IsExtendedResourceName).
func Check(name string) error {
	switch {
	case !strings.Contains(name, "/") || len(content.IsLabelKey(quota+name)) > 0:
		return fmt.Errorf("%.100q: want DOMAIN/NAME, as Kubernetes has extended resources: nvidia.com/TU104GL_Tesla_T4", name)
	case strings.Contains(name, "kubernetes.io/"):
		return fmt.Errorf("%q: kubernetes.io is Kubernetes' own: take another domain", name)
	case strings.HasPrefix(name, quota):
		return fmt.Errorf("%q: %s is how Kubernetes' quotas begin: take another domain", name, quota)
	}
	return nil
}

// Word is the last part of a resource's name: "kvm".
func Word(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }
