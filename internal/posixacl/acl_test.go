package posixacl

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const none = undefinedID

func TestList(t *testing.T) {
	const r, w, rw = Read, Write, Read | Write
	tests := []struct {
		name            string
		before          list
		uid             uint32
		perm            Perm
		granted, revoke list
	}{{
		name:    "a mode alone",
		before:  fromMode(0o100640),
		uid:     7,
		perm:    rw,
		granted: list{{tagOwner, rw, none}, {tagUser, rw, 7}, {tagOwns, r, none}, {tagMask, rw, none}, {tagOther, 0, none}},
		revoke:  fromMode(0o640),
	}, {
		name:    "private",
		before:  fromMode(0o600),
		uid:     7,
		perm:    r,
		granted: list{{tagOwner, rw, none}, {tagUser, r, 7}, {tagOwns, 0, none}, {tagMask, r, none}, {tagOther, 0, none}},
		revoke:  fromMode(0o600),
	}, {
		name:    "others' entries stay",
		before:  list{{tagOwner, rw, none}, {tagUser, rw, 5}, {tagOwns, 0, none}, {tagGroup, r, 9}, {tagMask, rw, none}, {tagOther, 0, none}},
		uid:     7,
		perm:    r,
		granted: list{{tagOwner, rw, none}, {tagUser, rw, 5}, {tagUser, r, 7}, {tagOwns, 0, none}, {tagGroup, r, 9}, {tagMask, rw, none}, {tagOther, 0, none}},
		revoke:  list{{tagOwner, rw, none}, {tagUser, rw, 5}, {tagOwns, 0, none}, {tagGroup, r, 9}, {tagMask, rw, none}, {tagOther, 0, none}},
	}, {
		name:    "what the mask holds back stays held back",
		before:  list{{tagOwner, rw, none}, {tagUser, rw, 5}, {tagOwns, rw, none}, {tagMask, r, none}, {tagOther, 0, none}},
		uid:     7,
		perm:    w,
		granted: list{{tagOwner, rw, none}, {tagUser, r, 5}, {tagUser, w, 7}, {tagOwns, r, none}, {tagMask, rw, none}, {tagOther, 0, none}},
		revoke:  list{{tagOwner, rw, none}, {tagUser, r, 5}, {tagOwns, r, none}, {tagMask, r, none}, {tagOther, 0, none}},
	}, {
		name:    "more for the same user",
		before:  list{{tagOwner, rw, none}, {tagUser, r, 7}, {tagOwns, 0, none}, {tagMask, r, none}, {tagOther, 0, none}},
		uid:     7,
		perm:    w,
		granted: list{{tagOwner, rw, none}, {tagUser, rw, 7}, {tagOwns, 0, none}, {tagMask, rw, none}, {tagOther, 0, none}},
		revoke:  fromMode(0o600),
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, err := decode(tt.before.encode())
			if err != nil {
				t.Fatal(err)
			}
			l.grant(tt.uid, tt.perm)
			if !reflect.DeepEqual(l, tt.granted) {
				t.Errorf("granted\n%v, want\n%v", l, tt.granted)
			}
			if !l.revoke(tt.uid) || !reflect.DeepEqual(l, tt.revoke) {
				t.Errorf("revoked\n%v, want\n%v", l, tt.revoke)
			}
			if l.revoke(tt.uid) {
				t.Error("revoked twice")
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	good := fromMode(0o644).encode()
	for name, b := range map[string][]byte{
		"empty":           {},
		"cut":             good[:len(good)-1],
		"another version": append([]byte{3, 0, 0, 0}, good[4:]...),
		"no owner":        append(append([]byte{}, good[:4]...), good[12:]...),
	} {
		if _, err := decode(b); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// mayRead reports whether the user can open the file for reading.
func mayRead(t *testing.T, path string, uid uint32) bool {
	t.Helper()
	cmd := exec.Command("/bin/cat", path)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return err == nil
}

// newFile makes a file that others can reach but not read.
func newFile(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOtherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to be other users")
	}
	path := newFile(t)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const uid, stranger = 61234, 61235
	steps := []struct {
		name   string
		do     func() error
		access bool
	}{
		{"before", func() error { return nil }, false},
		{"grant by path", func() error { return Grant(path, uid, Read) }, true},
		{"revoke by file", func() error { return RevokeFile(f, uid) }, false},
		{"grant by file", func() error { return GrantFile(f, uid, Read|Write) }, true},
		{"grant another", func() error { return Grant(path, 61236, Write) }, true},
		{"revoke by path", func() error { return Revoke(path, uid) }, false},
		{"revoke again", func() error { return Revoke(path, uid) }, false},
		{"revoke another", func() error { return Revoke(path, 61236) }, false},
	}
	for _, s := range steps {
		err := s.do()
		if errors.Is(err, unix.ENOTSUP) {
			t.Skip("the temporary folder's filesystem has no access control lists")
		}
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		if got := mayRead(t, path, uid); got != s.access {
			t.Errorf("%s: the user may read: %t, want %t", s.name, got, s.access)
		}
		if mayRead(t, path, stranger) {
			t.Errorf("%s: a stranger may read", s.name)
		}
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode() != 0o600 {
		t.Errorf("mode %v, %v: want 0600 as before", st.Mode(), err)
	}
	if _, err := pathTarget(path).get(); !errors.Is(err, unix.ENODATA) {
		t.Errorf("the list is not gone: %v", err)
	}
}

func TestRefuses(t *testing.T) {
	path := newFile(t)
	link := path + "-link"
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if err := Grant(link, 61234, Read); err == nil {
		t.Error("followed a symbolic link")
	}
	if err := Grant(path, 61234, 8); !errors.Is(err, unix.EINVAL) {
		t.Errorf("permission 8: %v", err)
	}
	if err := Grant(path+"-none", 61234, Read); !errors.Is(err, unix.ENOENT) {
		t.Errorf("no file: %v", err)
	}
	if err := Grant(path, uint32(os.Getuid()), Read|Write); err != nil {
		t.Errorf("the owner, who has it: %v", err)
	}
	if err := Grant(path, uint32(os.Getuid()), Execute); !errors.Is(err, unix.EACCES) {
		t.Errorf("the owner, who hasn't it: %v", err)
	}
	// proc has no access control lists.
	if err := Grant("/proc/self/status", 61234, Read); !errors.Is(err, unix.ENOTSUP) {
		t.Errorf("on proc: %v", err)
	}
}
