package monitor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/qemu/qmp"
	"golang.org/x/sys/unix"
)

var _ vmm.Screener = (*monitor)(nil)

// Screenshot has QEMU write a PNG into memory that has no name. The memory counts as the
// VM's, for QEMU writes it.
func (m *monitor) Screenshot(ctx context.Context, move bool) (io.ReadCloser, error) {
	if move {
		if err := m.movePointer(ctx); err != nil {
			return nil, err
		}
	}
	picture, err := memoryFile()
	if err != nil {
		return nil, err
	}
	err = m.dump(ctx, picture)
	if err == nil {
		err = checkSize(picture)
	}
	if err != nil {
		picture.Close()
		return nil, err
	}
	return picture, nil
}

// checkSize refuses what a guest has made of its display to be a burden to others.
func checkSize(picture *os.File) error {
	info, err := picture.Stat()
	if err == nil && info.Size() > vmm.MaxPicture {
		err = fmt.Errorf("the picture has %d bytes, more than %d", info.Size(), vmm.MaxPicture)
	}
	return err
}

// memoryFile is a file that is gone when it is closed.
func memoryFile() (*os.File, error) {
	fd, err := unix.MemfdCreate("screenshot", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), "screenshot"), nil
}

// dump has QEMU write the display to a file. QEMU opens a set's descriptor only as it was
// opened itself: for writing alone.
func (m *monitor) dump(ctx context.Context, picture *os.File) error {
	toWrite, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(int(picture.Fd())), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer toWrite.Close()
	var set struct {
		ID int64 `json:"fdset-id"`
	}
	if err := m.client.ExecuteWithFiles(ctx, "add-fd", nil, &set, toWrite); err != nil {
		return err
	}
	err = m.client.Execute(ctx, "screendump", map[string]string{"filename": fmt.Sprintf("/dev/fdset/%d", set.ID), "format": "png"}, nil)
	removed := m.client.Execute(context.WithoutCancel(ctx), "remove-fd", map[string]int64{"fdset-id": set.ID}, nil)
	if refused := new(qmp.Error); errors.As(err, &refused) {
		return fmt.Errorf("%w: %w", vmm.ErrNoDisplay, err)
	}
	return errors.Join(err, removed)
}

// movePointer moves it by a step and back, for what wakes a screen up. A guest without a
// pointer has none that could move: that is no error.
func (m *monitor) movePointer(ctx context.Context) error {
	for _, step := range []int{1, -1} {
		event := map[string]any{"type": "rel", "data": map[string]any{"axis": "x", "value": step}}
		err := m.client.Execute(ctx, "input-send-event", map[string]any{"events": []any{event}}, nil)
		if refused := new(qmp.Error); err != nil && !errors.As(err, &refused) {
			return err
		}
	}
	return nil
}
