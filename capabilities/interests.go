package capabilities

import (
	"os"

	"github.com/vmlet/vmlet/hypervisor/nodedevice"
	"github.com/vmlet/vmlet/internal/inotify"
)

// interests are all that a document's expensive parts depend on and that the kernel
// tells changes of: it tells none of /sys and /proc. found are the files that
// answers were found to depend on.
func (s Sources) interests(found []string) []inotify.Interest {
	all := []inotify.Interest{
		// VFIO's groups and devices come and go.
		{Path: s.Roots.DevPath("vfio"), Inside: "*"}, {Path: s.Roots.DevPath("vfio", "devices"), Inside: "*"},
	}
	for _, path := range nodedevice.Paths(s.Roots, s.Hypervisors.All()) {
		all = append(all, inotify.Interest{Path: path})
	}
	for _, h := range s.Hypervisors.All() {
		if d := h.Device(); d != "" {
			all = append(all, inotify.Interest{Path: d})
		}
	}
	for _, v := range s.VMMs {
		for _, path := range filesOf(v) {
			i := inotify.Interest{Path: path, Written: true}
			if info, err := os.Stat(path); err == nil && info.IsDir() {
				i.Inside = inFolders
			}
			all = append(all, i)
		}
	}
	for _, path := range found {
		all = append(all, inotify.Interest{Path: path, Written: true})
	}
	return all
}
