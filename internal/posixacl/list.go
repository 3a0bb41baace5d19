package posixacl

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// Tags of entries and the sizes of the encoding, from linux/posix_acl.h and
// linux/posix_acl_xattr.h.
const (
	tagOwner uint16 = 0x01 // ACL_USER_OBJ
	tagUser  uint16 = 0x02 // ACL_USER
	tagOwns  uint16 = 0x04 // ACL_GROUP_OBJ
	tagGroup uint16 = 0x08 // ACL_GROUP
	tagMask  uint16 = 0x10 // ACL_MASK
	tagOther uint16 = 0x20 // ACL_OTHER

	version     = 2 // POSIX_ACL_XATTR_VERSION
	headerSize  = 4
	entrySize   = 8
	undefinedID = ^uint32(0) // ACL_UNDEFINED_ID
)

type entry struct {
	tag  uint16
	perm Perm
	id   uint32
}

// list is an access control list in the kernel's order: by tag, then by id.
type list []entry

// fromMode is the list that a mode alone stands for.
func fromMode(mode uint32) list {
	return list{
		{tagOwner, Perm(mode>>6) & allPerms, undefinedID},
		{tagOwns, Perm(mode>>3) & allPerms, undefinedID},
		{tagOther, Perm(mode) & allPerms, undefinedID},
	}
}

func decode(b []byte) (list, error) {
	if len(b) < headerSize || (len(b)-headerSize)%entrySize != 0 {
		return nil, fmt.Errorf("an access control list of %d bytes: %w", len(b), unix.EINVAL)
	}
	if v := binary.LittleEndian.Uint32(b); v != version {
		return nil, fmt.Errorf("access control list of version %d, not %d: %w", v, version, unix.EINVAL)
	}
	var l list
	for b = b[headerSize:]; len(b) > 0; b = b[entrySize:] {
		l = append(l, entry{
			tag:  binary.LittleEndian.Uint16(b),
			perm: Perm(binary.LittleEndian.Uint16(b[2:])),
			id:   binary.LittleEndian.Uint32(b[4:]),
		})
	}
	for _, tag := range []uint16{tagOwner, tagOwns, tagOther} {
		if l.at(tag, 0) == nil {
			return nil, fmt.Errorf("access control list without an entry of tag %#x: %w", tag, unix.EINVAL)
		}
	}
	return l, nil
}

func (l list) encode() []byte {
	b := binary.LittleEndian.AppendUint32(nil, version)
	for _, e := range l {
		b = binary.LittleEndian.AppendUint16(b, e.tag)
		b = binary.LittleEndian.AppendUint16(b, uint16(e.perm))
		b = binary.LittleEndian.AppendUint32(b, e.id)
	}
	return b
}

// at returns the entry with that tag, and for users and groups that id, or nil.
func (l list) at(tag uint16, id uint32) *entry {
	named := tag == tagUser || tag == tagGroup
	for i := range l {
		if l[i].tag == tag && (!named || l[i].id == id) {
			return &l[i]
		}
	}
	return nil
}

// grant adds perm to the user's entry. The mask is widened by perm alone and
// not to all that the entries say: what it held back it goes on to hold back.
func (l *list) grant(uid uint32, perm Perm) {
	if mask := l.at(tagMask, 0); mask != nil {
		l.applyMask(mask.perm, perm)
		mask.perm |= perm
	} else {
		*l = append(*l, entry{tagMask, l.at(tagOwns, 0).perm | perm, undefinedID})
	}
	if e := l.at(tagUser, uid); e != nil {
		e.perm |= perm
	} else {
		*l = append(*l, entry{tagUser, perm, uid})
	}
	slices.SortFunc(*l, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.tag, b.tag), cmp.Compare(a.id, b.id))
	})
}

// applyMask takes from the entries that the mask governs those of the
// permissions in about that it holds back now: a wider mask is not to let them
// through.
func (l list) applyMask(mask, about Perm) {
	for i := range l {
		if governed(l[i].tag) {
			l[i].perm &^= about &^ mask
		}
	}
}

func governed(tag uint16) bool { return tag == tagUser || tag == tagOwns || tag == tagGroup }

// revoke removes the user's entry and reports whether there was one. The mask
// shrinks to what the entries left need; with only the mode's three left it goes.
func (l *list) revoke(uid uint32) bool {
	if l.at(tagUser, uid) == nil {
		return false
	}
	*l = slices.DeleteFunc(*l, func(e entry) bool { return e.tag == tagUser && e.id == uid })
	mask := l.at(tagMask, 0)
	if mask == nil {
		return true
	}
	var used Perm
	named := false
	for _, e := range *l {
		if governed(e.tag) {
			used |= e.perm
			named = named || e.tag != tagOwns
		}
	}
	mask.perm &= used
	if !named {
		l.at(tagOwns, 0).perm &= mask.perm
		*l = slices.DeleteFunc(*l, func(e entry) bool { return e.tag == tagMask })
	}
	return true
}
