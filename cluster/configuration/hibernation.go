package configuration

import (
	"cmp"
	"fmt"
	"strings"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// hibernation reads how VMs hibernate that leave it open. A hibernateStrategy takes the place of the
// shipped one as a whole: what it leaves out, each VM has to say.
func (c *Configuration) hibernation(d *kubevirtv1.HibernateDefaults, faults *[]Ignored) {
	const field = "configuration.defaultHibernateConfig."
	if d == nil {
		return
	}
	h := &c.Hibernation
	if s := d.HibernateStrategy; s != nil {
		mode, known := HibernateMode(s.Mode)
		if !known {
			*faults = append(*faults, Ignored{field + "hibernateStrategy.mode",
				fmt.Sprintf("%.40q is neither %s nor %s; %s is used", s.Mode, kubevirtv1.HibernateSave, kubevirtv1.HibernateSuspendToDisk, h.Mode)})
			mode = h.Mode
		}
		h.Mode, h.WarningTimeoutSeconds, h.StorageClassName = mode, 0, s.StorageClassName
		if seconds := s.WarningTimeoutSeconds; seconds != nil {
			h.WarningTimeoutSeconds = max(*seconds, 0)
		}
	}
	if d.StartStrategy == nil || *d.StartStrategy == "" {
		return
	}
	start, known := StartStrategy(*d.StartStrategy)
	if !known {
		*faults = append(*faults, Ignored{field + "startStrategy",
			fmt.Sprintf("%.40q is neither %s nor %s; %s is used", *d.StartStrategy, kubevirtv1.StartRestore, kubevirtv1.StartBoot, h.StartStrategy)})
		return
	}
	h.StartStrategy = start
}

// ModeOf is how a VM with this strategy, which may be nil, hibernates: its own word, else the cluster's.
func (h Hibernation) ModeOf(s *kubevirtv1.HibernateStrategy) string {
	if s != nil && s.Mode != "" {
		mode, _ := HibernateMode(s.Mode)
		return mode
	}
	return cmp.Or(h.Mode, kubevirtv1.HibernateSave)
}

// HibernateMode understands how users spell a way to hibernate, which is empty where they leave it
// open.
func HibernateMode(text string) (mode string, known bool) {
	for _, mode := range []string{"", kubevirtv1.HibernateSave, kubevirtv1.HibernateSuspendToDisk} {
		if strings.EqualFold(text, mode) {
			return mode, true
		}
	}
	return "", false
}

// StartStrategy understands how users spell what a start does with a guest's saved memory, which is
// empty where they leave it open.
func StartStrategy(text kubevirtv1.StartStrategy) (s kubevirtv1.StartStrategy, known bool) {
	for _, s := range []kubevirtv1.StartStrategy{"", kubevirtv1.StartRestore, kubevirtv1.StartBoot} {
		if strings.EqualFold(string(text), string(s)) {
			return s, true
		}
	}
	return "", false
}
