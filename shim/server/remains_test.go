package server

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/shim"
)

// TestSaveOverRemains: what an earlier shim of the VM had not lived to remove is no
// obstacle to a save into the same folder.
func TestSaveOverRemains(t *testing.T) {
	s := newScene(t, nil)
	s.launch()
	image := filepath.Join(s.root, "image")
	s.check(os.Mkdir(image, 0o700))
	s.check(os.WriteFile(filepath.Join(image, memory.StateName), nil, 0o600))
	var st unix.Statx_t
	s.check(unix.Statx(unix.AT_FDCWD, image, 0, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st))
	noted, err := json.Marshal(memory.Remains{
		Directory: image, Made: true,
		Folder: memory.FileID{DeviceMajor: st.Dev_major, DeviceMinor: st.Dev_minor, Inode: st.Ino, Born: st.Btime.Sec*1e9 + int64(st.Btime.Nsec)},
		Files:  map[string]memory.FileID{memory.StateName: {}},
	})
	s.check(err)
	s.check(os.WriteFile(filepath.Join(s.options.RunDir, shim.SavingName), noted, 0o600))
	_, err = s.client.Save(s.ctx, s.saveArgs(image), nil, nil)
	s.check(err)
}
