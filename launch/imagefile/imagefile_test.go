package imagefile

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// image makes a filesystem: names that end in "/" are folders, "a -> b" a link, all else
// files that have their own name in them.
func image(t *testing.T, names ...string) Image {
	t.Helper()
	root := t.TempDir()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names {
		from, to, link := strings.Cut(name, " -> ")
		path := filepath.Join(root, from)
		check(os.MkdirAll(filepath.Dir(path), 0o755))
		switch {
		case link:
			check(os.Symlink(to, path))
		case strings.HasSuffix(name, "/"):
			check(os.MkdirAll(path, 0o755))
		case strings.HasSuffix(name, "|"):
			check(unix.Mkfifo(strings.TrimSuffix(path, "|"), 0o644))
		default:
			check(os.WriteFile(path, []byte(name), 0o644))
		}
	}
	return Image{Root: root}
}

func TestOpen(t *testing.T) {
	many := make([]string, 0, 100)
	for i := range 100 {
		many = append(many, "disk/"+strings.Repeat("n", i+1))
	}
	for name, test := range map[string]struct {
		files []string
		path  string
		want  string // content
		fault string
	}{
		"one file":           {[]string{"disk/any.qcow2", "etc/hosts"}, "", "disk/any.qcow2", ""},
		"named":              {[]string{"disk/a", "disk/b"}, "/disk/b", "disk/b", ""},
		"named, relative":    {[]string{"boot/vmlinuz"}, "boot/vmlinuz", "boot/vmlinuz", ""},
		"link inside":        {[]string{"disk/a -> ../images/a", "images/a"}, "", "images/a", ""},
		"absolute link":      {[]string{"disk/a -> /images/a", "images/a"}, "", "images/a", ""},
		"folder by link":     {[]string{"disk -> images", "images/a"}, "", "images/a", ""},
		"link above":         {[]string{"disk/a -> ../../../images/a", "images/a"}, "", "images/a", ""},
		"no folder":          {[]string{"etc/", "usr/", "proc/", "dev/"}, "", "", "has no single disk file under /disk; found: etc, usr"},
		"nothing at all":     {nil, "", "", "has no single disk file under /disk; found: nothing"},
		"empty folder":       {[]string{"disk/", "etc/"}, "", "", "has no single disk file under /disk; found: nothing"},
		"two files":          {[]string{"disk/b", "disk/a"}, "", "", "has no single disk file under /disk; found: /disk/a, /disk/b: give one of them as the path"},
		"many files":         {many, "", "", " …"},
		"folder is a file":   {[]string{"disk"}, "", "", "under /disk, which is a file: put it into a folder (ADD disk.img /disk/, with the slash), or give /disk as the path"},
		"a folder inside":    {[]string{"disk/a/b"}, "", "", "under /disk, but a folder; found: /disk/a/b: give the file as the path"},
		"a FIFO":             {[]string{"disk/a|"}, "", "", "has no regular file at /disk/a"},
		"dangling":           {[]string{"disk/a -> nonesuch"}, "", "", "no such file"},
		"to the machine":     {[]string{"disk/a -> /proc/self/exe"}, "", "", "no such file"},
		"named, not there":   {[]string{"boot/initrd"}, "/boot/vmlinuz", "", "has no file /boot/vmlinuz; found in /boot: /boot/initrd"},
		"named, nor folder":  {[]string{"etc/"}, "/boot/vmlinuz", "", "has no file /boot/vmlinuz; found in /boot: nothing (open /boot: no such file or directory)"},
		"named above":        {[]string{"a"}, "../../a", "a", ""},
		"link to itself":     {[]string{"disk/a -> a"}, "", "", "has a link at /disk/a that leads out of it"},
		"name with controls": {[]string{"disk/a\x1b[2J\nvolume root: ready\u202e", "disk/b"}, "", "", "found: /disk/a?[2J?volume root: ready?, /disk/b"},
		"name that's no UTF": {[]string{"disk/\xff", "disk/b"}, "", "", "found: /disk/b, /disk/?"},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := image(t, test.files...).Open(test.path)
			if test.fault != "" {
				if err == nil || !strings.Contains(err.Error(), test.fault) || len(err.Error()) > 2000 {
					t.Errorf("error %v\nwant  %s", err, test.fault)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if content, err := io.ReadAll(f); err != nil || string(content) != test.want {
				t.Errorf("%q, %v", content, err)
			}
		})
	}
}

// TestMounts: an image that declares a volume is served, and none of its links leads into
// what the pod has mounted.
func TestMounts(t *testing.T) {
	i := image(t, "disk/", "secret/", "images/a -> /secret/token", "images/b -> /proc/self/exe", "proc/")
	for _, name := range []string{"disk", "secret"} {
		at := filepath.Join(i.Root, name)
		if err := unix.Mount("tmpfs", at, "tmpfs", 0, ""); err != nil {
			t.Skip("needs to mount a tmpfs: ", err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
	}
	for _, name := range []string{"disk/a", "secret/token"} {
		if err := os.WriteFile(filepath.Join(i.Root, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := i.Open("")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if f, err := i.Open("/images/a"); err == nil || !strings.Contains(err.Error(), "has a link at /images/a that leads out of it") {
		t.Errorf("%v, %v", f, err)
	}
}
