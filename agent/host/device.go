package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/vmlet/vmlet/internal/posixacl"
	"golang.org/x/sys/unix"
)

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// devicesLock is locked while a device node's access list is changed: the agents of a
// machine change the same ones. It is root's, and so is the folder: nobody else can hold it.
const devicesLock = "/run/vmlet-devices.lock"

// Devices gives VMs' users access to device nodes by their access control
// lists. It may be used concurrently, by several processes, too.
type Devices struct{}

func exclusively(do func() error) error {
	f, err := os.OpenFile(devicesLock, os.O_RDONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	f.Close()
	return posixacl.Exclusively(devicesLock, do)
}

// Grant lets a user read and write a device. granted says whether anything had
// to be done, and is to be revoked.
func (Devices) Grant(path string, uid uint32) (granted bool, err error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	if st.Mode&0o006 == 0o006 {
		return false, nil
	}
	if err := exclusively(func() error { return posixacl.Grant(path, uid, posixacl.Read|posixacl.Write) }); err != nil {
		return false, fmt.Errorf("giving user %d access to %s: %w", uid, path, err)
	}
	return true, nil
}

// Revoke takes back what Grant gave.
func (Devices) Revoke(path string, uid uint32) error {
	err := exclusively(func() error { return posixacl.Revoke(path, uid) })
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("taking back user %d's access to %s: %w", uid, path, err)
	}
	return nil
}
