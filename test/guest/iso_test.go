package guest_test

import (
	"os"
	"testing"

	"github.com/diskfs/go-diskfs"
	"github.com/diskfs/go-diskfs/disk"
	"github.com/diskfs/go-diskfs/filesystem"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"
)

// writeISO makes an ISO 9660 image with files in its root.
func writeISO(t *testing.T, path, label string, files map[string]string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("making %s: %v", path, err)
		}
	}
	image, err := diskfs.Create(path, 1<<20, diskfs.SectorSize(2048))
	must(err)
	defer image.Close()
	fs, err := image.CreateFilesystem(disk.FilesystemSpec{FSType: filesystem.TypeISO9660, VolumeLabel: label})
	must(err)
	for name, content := range files {
		f, err := fs.OpenFile("/"+name, os.O_CREATE|os.O_RDWR)
		must(err)
		_, err = f.Write([]byte(content))
		must(err)
		must(f.Close())
	}
	iso, ok := fs.(*iso9660.FileSystem)
	if !ok {
		t.Fatalf("making %s: got a %T", path, fs)
	}
	must(iso.Finalize(iso9660.FinalizeOptions{RockRidge: true, VolumeIdentifier: label}))
}
