package guest

import (
	"fmt"
	"os"
	"path/filepath"
)

// MissingError says that something which test/setup puts into the cache is not
// there. Tests that need it are skipped with it as the reason.
type MissingError struct {
	// Path is what was looked for.
	Path string
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("%s is not there: run test/setup test", e.Path)
}

// CacheDir is the folder that test/setup fills: $VMLET_CACHE, or else
// /var/cache/vmlet for root, or else vmlet in the user's own cache folder.
func CacheDir() (string, error) {
	if dir := os.Getenv("VMLET_CACHE"); dir != "" {
		return dir, nil
	}
	if os.Geteuid() == 0 {
		return "/var/cache/vmlet", nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache folder: %w: set VMLET_CACHE", err)
	}
	return filepath.Join(dir, "vmlet"), nil
}

// QEMU10 is the path of a QEMU 10 that test/setup unpacked next to a machine's
// own, older one. The error is a [*MissingError] if there is none; the
// machine's own QEMU may then be as new itself.
func QEMU10() (string, error) { return Cached("qemu-10") }

// Cached returns the path of something in the cache, or a *MissingError.
func Cached(elem ...string) (string, error) {
	dir, err := CacheDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(append([]string{dir}, elem...)...)
	if _, err := os.Stat(path); err != nil {
		return "", &MissingError{Path: path}
	}
	return path, nil
}
