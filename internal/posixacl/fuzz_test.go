package posixacl

import (
	"bytes"
	"testing"
)

// FuzzDecode: a list that a filesystem gives is refused, or is written as it was read;
// what is granted is there, and nobody else gets more.
func FuzzDecode(f *testing.F) {
	f.Add(fromMode(0o640).encode(), uint32(7))
	l := fromMode(0o640)
	l.grant(7, Read)
	f.Add(l.encode(), uint32(8))
	f.Add([]byte{2, 0, 0, 0}, uint32(0))
	f.Add([]byte{}, uint32(0))
	f.Fuzz(func(t *testing.T, raw []byte, uid uint32) {
		l, err := decode(raw)
		if err != nil {
			return
		}
		if !bytes.Equal(l.encode(), raw) {
			t.Fatalf("%x is written as %x", raw, l.encode())
		}
		before := append(list(nil), l...)
		l.grant(uid, Read)
		granted, err := decode(l.encode())
		if err != nil {
			t.Fatalf("after granting user %d: %v", uid, err)
		}
		if e := granted.at(tagUser, uid); e == nil || e.perm&Read == 0 || granted.at(tagMask, 0).perm&Read == 0 {
			t.Errorf("%x: user %d is granted nothing", raw, uid)
		}
		// Two entries for one user, which the kernel refuses, are not made.
		if len(granted) > len(before)+2 {
			t.Errorf("%x: %d entries, %d after it", raw, len(before), len(granted))
		}
	})
}
