package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/vmlet/vmlet/internal/posixacl"
	"golang.org/x/sys/unix"
)

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Devices gives VMs' users access to device nodes by their access control
// lists. It may be used concurrently.
type Devices struct{ mu sync.Mutex }

// Grant lets a user read and write a device. granted says whether anything had
// to be done, and is to be revoked.
func (d *Devices) Grant(path string, uid uint32) (granted bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	if st.Mode&0o006 == 0o006 {
		return false, nil
	}
	if err := posixacl.Grant(path, uid, posixacl.Read|posixacl.Write); err != nil {
		return false, fmt.Errorf("giving user %d access to %s: %w", uid, path, err)
	}
	return true, nil
}

// Revoke takes back what Grant gave.
func (d *Devices) Revoke(path string, uid uint32) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := posixacl.Revoke(path, uid); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("taking back user %d's access to %s: %w", uid, path, err)
	}
	return nil
}
