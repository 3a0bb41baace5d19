package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/test/faultfs"
	"github.com/vmlet/vmlet/test/guest"
)

// diskFaults are those of a save, with what its error has to say.
func diskFaults() map[string]struct {
	fault faultfs.Fault
	words []string
} {
	type f = faultfs.Fault
	const temp = memory.ManifestName + ".tmp"
	return map[string]struct {
		fault faultfs.Fault
		words []string
	}{
		"folder read-only":      {f{Op: faultfs.OpChange, Errno: unix.EROFS, Times: faultfs.Forever}, []string{"read-only file system"}},
		"state not made":        {f{Op: faultfs.OpCreate, Name: memory.StateName, Errno: unix.EDQUOT}, []string{memory.StateName, "disk quota exceeded"}},
		"state not written":     {f{Op: faultfs.OpWrite, Name: memory.StateName, Errno: unix.EIO}, []string{"device state"}},
		"state full":            {f{Op: faultfs.OpWrite, Name: memory.StateName, Errno: unix.ENOSPC, Times: faultfs.Forever}, []string{"device state"}},
		"state not synced":      {f{Op: faultfs.OpFsync, Name: memory.StateName, Errno: unix.EIO}, []string{memory.StateName, "input/output error"}},
		"memory not made":       {f{Op: faultfs.OpCreate, Name: memory.MemoryName, Errno: unix.EACCES}, []string{memory.MemoryName, "permission denied"}},
		"memory not sized":      {f{Op: faultfs.OpTruncate, Name: memory.MemoryName, Errno: unix.EFBIG}, []string{memory.MemoryName, "file too large"}},
		"memory not written":    {f{Op: faultfs.OpWrite, Name: memory.MemoryName, Nth: 5, Errno: unix.EIO, Times: faultfs.Forever}, []string{memory.MemoryName, "input/output error"}},
		"memory full":           {f{Op: faultfs.OpWrite, Name: memory.MemoryName, Nth: 9, Errno: unix.ENOSPC, Times: faultfs.Forever}, []string{memory.MemoryName, "no space left"}},
		"memory not synced":     {f{Op: faultfs.OpFsync, Name: memory.MemoryName, Errno: unix.EIO}, []string{memory.MemoryName, "input/output error"}},
		"manifest full":         {f{Op: faultfs.OpWrite, Name: temp, Errno: unix.ENOSPC}, []string{temp, "no space left"}},
		"manifest not synced":   {f{Op: faultfs.OpFsync, Name: temp, Errno: unix.EIO}, []string{temp, "input/output error"}},
		"manifest not renamed":  {f{Op: faultfs.OpRename, Errno: unix.EIO}, []string{temp, "input/output error"}},
		"renamed, and not said": {f{Op: faultfs.OpRename, Errno: unix.EIO, Late: true}, []string{temp, "input/output error"}},
		"folder not synced":     {f{Op: faultfs.OpFsyncdir, Errno: unix.EIO}, []string{"input/output error"}},
		"new name not synced":   {f{Op: faultfs.OpFsyncdir, Nth: 2, Errno: unix.EIO}, []string{"input/output error"}},
		"parent not synced":     {f{Op: faultfs.OpFsyncdir, Nth: 3, Errno: unix.EIO}, []string{"input/output error"}},
		"gone, as NFS may be":   {f{Op: faultfs.OpWrite, Name: memory.MemoryName, Errno: unix.ESTALE, Times: faultfs.Forever}, []string{memory.MemoryName, "stale"}},
		// The kernel splits large writes: where a later part has met it, the rest is
		// written again, and all is well.
		onceNotWritten:           {f{Op: faultfs.OpWrite, Name: memory.MemoryName, Nth: 5, Errno: unix.EIO}, []string{memory.MemoryName, "input/output error"}},
		"a signal at the folder": {f{Op: faultfs.OpMkdir, Errno: unix.EINTR}, nil},
		"short writes":           {f{Op: faultfs.OpWrite, Short: true, Times: 20}, nil},
	}
}

// onceNotWritten is the fault that may be none.
const onceNotWritten = "memory not written once"

// TestSaveToFailingDisk: after each fault the guest goes on and nothing is left. With
// no words the fault is none.
func TestSaveToFailingDisk(t *testing.T) {
	fs := faultfs.ForTest(t)
	s := newScene(t)
	s.launch(s.plan(anyQEMU(t)))
	s.console(1 << 20).expect("filled 8")
	dir := filepath.Join(fs.Path(), "image")
	for name, test := range diskFaults() {
		t.Run(name, func(t *testing.T) {
			fs.Arm(test.fault)
			_, err := s.save(dir, true)
			if fs.Disarm() == 0 {
				t.Fatalf("the fault has not come; there were %v", fs.Counts())
			}
			s.goesOn()
			if test.words == nil || err == nil && name == onceNotWritten {
				if err != nil {
					t.Fatal(err)
				}
				s.whole(dir)
				s.check(memory.Remove(dir))
				return
			}
			if err == nil {
				s.check(os.RemoveAll(dir))
				t.Fatal("no error")
			}
			for _, w := range append(test.words, fs.Path()) {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not have %q", err, w)
				}
			}
			if name == "memory full" && !isCode(err, shim.CodeSpace) {
				t.Errorf("%v has no code of a full disk", err)
			}
			s.noImage(dir)
		})
	}
	_, err := s.save(dir, false)
	s.check(err)
	s.client.Close()
	s.gone(shim.ReasonSaved)
	s.again(s.restorePlan(anyQEMU(t), dir, false))
	s.console(0).verify()
}

// whole sees that there is an image that is as its manifest says.
func (s *scene) whole(dir string) {
	s.t.Helper()
	img, err := memory.Open(dir)
	s.check(err)
	defer img.Close()
	s.check(img.Verify(s.ctx, nil))
}

func isCode(err error, code shim.Code) bool {
	var e *shim.Error
	return errors.As(err, &e) && e.Code == code
}

// TestSaveToSlowDisk: while the disk does nothing the shim's memory is bounded, and a
// save that is given up leaves a guest that runs.
func TestSaveToSlowDisk(t *testing.T) {
	fs := faultfs.ForTest(t)
	s := newScene(t)
	s.launch(s.plan(anyQEMU(t)))
	s.console(1 << 20).expect("filled 8")
	dir := filepath.Join(fs.Path(), "image")
	goOn := make(chan struct{})
	reached := make(chan struct{}, 1)
	fs.Arm(faultfs.Fault{Op: faultfs.OpWrite, Name: memory.MemoryName, Times: faultfs.Forever, Wait: func(context.Context) {
		select {
		case reached <- struct{}{}:
		default:
		}
		<-goOn
	}})
	ctx, cancel := context.WithCancel(s.ctx)
	result := make(chan error, 1)
	go func() {
		_, err := s.client.Save(ctx, s.saveArgs(dir), nil, nil)
		result <- err
	}()
	<-reached
	const most = maxResident + 8<<10 // a buffer of 1 MiB for each of at most four workers, and some
	if kib := s.resident(); kib > most {
		t.Errorf("%d KiB resident while the disk is slow, more than %d", kib, most)
	}
	cancel()
	s.goesOn() // though the disk doesn't
	close(goOn)
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	fs.Disarm()
	s.goesOn()
	s.waitFor(func() bool { _, err := os.Lstat(dir); return err != nil })
	_, err := s.save(dir, true)
	s.check(err)
}

// resident is what the shim takes, in KiB.
func (s *scene) resident() int {
	s.t.Helper()
	status, err := os.ReadFile(filepath.Join("/proc", itoa(s.shimPID), "status"))
	s.check(err)
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	s.check(err)
	return kib
}

// savedOn makes an image on a filesystem with faults.
func savedOn(t *testing.T, fs *faultfs.FS, q qemu) (*scene, string) {
	t.Helper()
	s := newScene(t)
	s.launch(s.plan(q))
	s.console(1 << 20).expect("filled 8")
	dir := filepath.Join(fs.Path(), "image")
	_, err := s.save(dir, false)
	s.check(err)
	s.client.Close()
	s.gone(shim.ReasonSaved)
	return s, dir
}

// TestRestoreFromFailingDisk: what can't be read is said before the guest runs; the
// same restore works when the disk does.
func TestRestoreFromFailingDisk(t *testing.T) {
	fs, q := faultfs.ForTest(t), anyQEMU(t)
	s, dir := savedOn(t, fs, q)
	s.newFolders()
	s.startShim()
	p := s.restorePlan(q, dir, false)
	for name, test := range map[string]struct {
		fault faultfs.Fault
		words []string
	}{
		"manifest unreadable": {faultfs.Fault{Op: faultfs.OpRead, Name: memory.ManifestName, Errno: unix.EIO, Times: faultfs.Forever}, []string{memory.ManifestName, "input/output error"}},
		"state unreadable":    {faultfs.Fault{Op: faultfs.OpRead, Name: memory.StateName, Errno: unix.EIO, Times: faultfs.Forever}, []string{memory.StateName, "input/output error"}},
		"memory unreadable":   {faultfs.Fault{Op: faultfs.OpRead, Name: memory.MemoryName, Nth: 4, Errno: unix.EIO, Times: faultfs.Forever}, []string{memory.MemoryName, "chunk", "input/output error"}},
		"memory reads wrong":  {faultfs.Fault{Op: faultfs.OpRead, Name: memory.MemoryName, Nth: 4, Flip: true}, []string{memory.MemoryName, "chunk", "sum"}},
		"memory gone":         {faultfs.Fault{Op: faultfs.OpOpen, Name: memory.MemoryName, Errno: unix.ESTALE, Times: faultfs.Forever}, []string{memory.MemoryName, "stale"}},
	} {
		t.Run(name, func(t *testing.T) {
			fs.Arm(test.fault)
			_, err := s.client.Launch(s.ctx, shim.Launch{Plan: p}, nil, nil)
			if fs.Disarm() == 0 || err == nil {
				t.Fatalf("error %v, there were %v", err, fs.Counts())
			}
			for _, w := range append(test.words, dir) {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not have %q", err, w)
				}
			}
		})
	}
	_, err := s.client.Launch(s.ctx, shim.Launch{Plan: p}, nil, nil)
	s.check(err)
	s.console(0).verify()
}

// TestLazyFromFailingDisk: memory that can't be read any more stops the guest, with
// an event; a guest that goes on all the same and needs it ends its VMM.
func TestLazyFromFailingDisk(t *testing.T) {
	fs, q := faultfs.ForTest(t), lazyQEMU(t)
	s, dir := savedOn(t, fs, q)
	// Of the guest's pattern, which it looks at only when it is told to.
	fs.Arm(faultfs.Fault{Op: faultfs.OpRead, Name: memory.MemoryName, Offset: 20 << 20, Errno: unix.EIO, Times: faultfs.Forever})
	s.again(s.restorePlan(q, dir, true))
	select {
	case event := <-s.client.Events():
		if !strings.Contains(event.Damaged, "chunk 20") || !strings.Contains(event.Damaged, "input/output error") {
			t.Errorf("event %+v", event)
		}
	case <-s.ctx.Done():
		t.Fatal("that it can't be read is not noticed")
	}
	if got := string(s.monitor("query-status")); !strings.Contains(got, `"running": false`) {
		t.Errorf("the guest is %s", got)
	}
	c := s.console(0)
	s.monitor("cont")
	if _, err := c.conn.Write([]byte(string(guest.KeyVerify))); err != nil {
		t.Fatal(err)
	}
	exit := s.gone(shim.ReasonCrashed)
	if exit.Signal != "SIGBUS" {
		t.Errorf("it ended by %+v", exit)
	}
}
