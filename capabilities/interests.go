package capabilities

import (
	"os"
	"path/filepath"
)

// interest is a file or folder whose coming, going and changing matter.
type interest struct {
	path string
	// inside is the pattern of what matters in the folder, as path.Match takes
	// it; empty: nothing.
	inside string
	// written: that its content is written matters, too. Not with devices:
	// somebody always writes to one.
	written bool
}

// interests are all that a document's dear parts hang on and that the kernel
// tells changes of: it tells none of /sys and /proc. found are the files that
// answers were found to hang on.
func (s Sources) interests(found []string) []interest {
	dev := s.Roots.DevPath()
	all := []interest{
		{path: filepath.Join(dev, "kvm")}, {path: filepath.Join(dev, "mshv")}, {path: filepath.Join(dev, "sev")},
		{path: filepath.Join(dev, "iommu")}, {path: filepath.Join(dev, "net", "tun")}, {path: dev, inside: "vhost-*"},
		{path: filepath.Join(dev, "vfio"), inside: "*"}, {path: filepath.Join(dev, "vfio", "devices"), inside: "*"},
	}
	for _, h := range s.Hypervisors.All() {
		if d := h.Device(); d != "" {
			all = append(all, interest{path: d})
		}
	}
	for _, v := range s.VMMs {
		for _, path := range filesOf(v) {
			i := interest{path: path, written: true}
			if info, err := os.Stat(path); err == nil && info.IsDir() {
				i.inside = inFolders
			}
			all = append(all, i)
		}
	}
	for _, path := range found {
		all = append(all, interest{path: path, written: true})
	}
	for i := range all {
		if path, err := filepath.Abs(all[i].path); err == nil {
			all[i].path = path
		}
	}
	return all
}

// literal is the pattern that fits this name alone.
func literal(name string) string {
	var out []rune
	for _, r := range name {
		switch r {
		case '*', '?', '[', ']', '\\', '-', '^':
			out = append(out, '\\')
		}
		out = append(out, r)
	}
	return string(out)
}
