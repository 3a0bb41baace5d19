package capabilities

import (
	"os"
	"path/filepath"

	"github.com/vmlet/vmlet/internal/inotify"
)

// interests are all that a document's dear parts hang on and that the kernel
// tells changes of: it tells none of /sys and /proc. found are the files that
// answers were found to hang on.
func (s Sources) interests(found []string) []inotify.Interest {
	dev := s.Roots.DevPath()
	all := []inotify.Interest{
		{Path: filepath.Join(dev, "kvm")}, {Path: filepath.Join(dev, "mshv")}, {Path: filepath.Join(dev, "sev")},
		{Path: filepath.Join(dev, "iommu")}, {Path: filepath.Join(dev, "net", "tun")}, {Path: dev, Inside: "vhost-*"},
		{Path: filepath.Join(dev, "vfio"), Inside: "*"}, {Path: filepath.Join(dev, "vfio", "devices"), Inside: "*"},
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
