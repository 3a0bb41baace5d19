package agent

import (
	"regexp"
	"testing"

	"github.com/vmlet/vmlet/agent/config"
	"github.com/vmlet/vmlet/agent/node"
	"github.com/vmlet/vmlet/capabilities/sources"
	hypervisors "github.com/vmlet/vmlet/hypervisor/standard/probe"
	"github.com/vmlet/vmlet/sysfs"
	"github.com/vmlet/vmlet/vmm/profile"
)

// TestThreads: a stack's profile names its VMM's vCPUs, and those of other VMMs under the same
// hypervisor keep their names.
func TestThreads(t *testing.T) {
	n := &node.Node{Hypervisors: hypervisors.Hypervisors(sysfs.Roots{})}
	for hypervisor, want := range map[string]map[string]bool{
		"kvm":       {"CPU 3/KVM": true, "own-3": true, "CPU 3/TCG": false, "worker": false},
		"emulation": {"CPU 3/TCG": true, "own-3": false},
		"unknown":   {"own-3": true, "CPU 3/KVM": false},
	} {
		p := &program{node: n, cfg: config.Config{Config: sources.Config{
			VirtualizationProfile: profile.Profile{Components: profile.Components{VCPURegex: `^own-(\d+)$`}},
		}}}
		pattern := regexp.MustCompile(p.threads(hypervisor).VCPU)
		for thread, is := range want {
			if got := pattern.MatchString(thread); got != is {
				t.Errorf("%s: thread %q is a vCPU's: %v, want %v", hypervisor, thread, got, is)
			}
		}
	}
}
