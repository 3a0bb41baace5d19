package disk

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Foreign is content that is no disk: an archive, a film, a web page.
type Foreign struct {
	// What it is, with its article: "a zip archive".
	What string
	// Remedy says what to do.
	Remedy string
	// Tar is set for tar archives, in which vendors offer disks (tar.gz, OVA).
	Tar bool
}

func (f *Foreign) Error() string {
	return fmt.Sprintf("it is %s, not a disk: %s", f.What, f.Remedy)
}

// ForeignLength is how much of the head RecogniseForeign needs, in bytes: beyond the first volume descriptor of ISO 9660 and UDF.
const ForeignLength = isoDescriptor + 16

// isoDescriptor is where ISO 9660 and UDF have their first volume descriptor, in bytes.
const isoDescriptor = 16 * 2048

// beginning is how much of a text is looked at for what it says of itself, in bytes.
const beginning = 4 << 10

const (
	unpack   = "unpack it and offer the disk that is in it"
	nameDisk = "name a disk image (raw, ISO or qcow2)"
)

// RecogniseForeign tells what a file is that is surely no disk, by the head of what Recognise takes for raw; nil: it may be a disk.
// A disk may begin with anything: what has a partition table, a boot sector, a volume descriptor of ISO 9660 or a file system's
// superblock is one, whatever was left before that. Programs and kernels (ELF) are not told from disks.
func RecogniseForeign(head []byte) *Foreign {
	if len(head) == 0 || slices.ContainsFunc(diskSignatures(), func(s placed) bool { return s.in(head) }) {
		return nil
	}
	if isTar(head) {
		return &Foreign{What: "a tar archive (or an OVA, which is one)", Remedy: unpack, Tar: true}
	}
	for _, s := range foreignSignatures() {
		if s.in(head) {
			return &Foreign{What: s.what, Remedy: s.remedy}
		}
	}
	return recogniseText(head)
}

// placed is what files of a kind have at an offset.
type placed struct {
	offset int
	bytes  string
}

func (p placed) in(head []byte) bool {
	return len(head) >= p.offset && bytes.HasPrefix(head[p.offset:], []byte(p.bytes))
}

// diskSignatures lists what marks a disk within its head, where something else may stand before it: tools that make file systems
// and volumes leave the first sector as it was. From the formats' specifications and Linux' headers.
func diskSignatures() []placed {
	return []placed{
		{510, "\x55\xaa"},            // boot sector
		{512, "EFI PART"},            // GPT
		{512, "LABELONE"},            // LVM
		{1024, "\xe2\xe1\xf5\xe0"},   // EROFS
		{1024, "\x10\x20\xf5\xf2"},   // F2FS
		{1080, "\x53\xef"},           // ext2, ext3, ext4
		{4086, "SWAP-SPACE"},         // swap
		{4086, "SWAPSPACE2"},         // swap
		{4096, "\xfc\x4e\x2b\xa9"},   // Linux' RAID, metadata 1.2
		{isoDescriptor + 1, "CD001"}, // ISO 9660
		{isoDescriptor + 1, "BEA01"}, // UDF
	}
}

// isTar: the sum of a tar archive's first header is right. The oldest archives have no other mark.
func isTar(head []byte) bool {
	const block, from, to = 512, 148, 156 // of the sum, which counts itself as spaces
	if len(head) < block {
		return false
	}
	want, err := strconv.ParseUint(strings.Trim(string(head[from:to]), " \x00"), 8, 32)
	sum := uint64(to-from) * ' '
	for n, c := range head[:block] {
		if n < from || n >= to {
			sum += uint64(c)
		}
	}
	return err == nil && sum == want
}

type foreignSignature struct {
	placed
	what, remedy string
}

// foreignSignatures lists the beginnings of files, from their formats' specifications. All but gzip's have four bytes or more.
// bzip2's is that of its first block.
func foreignSignatures() []foreignSignature {
	return []foreignSignature{
		{placed{0, "\x1f\x8b\x08"}, "a file compressed by gzip", unpack},
		{placed{4, "1AY&SY"}, "a file compressed by bzip2", unpack},
		{placed{4, "\x17\x72\x45\x38\x50\x90"}, "a file compressed by bzip2", unpack}, // an empty one
		{placed{0, "\xfd7zXZ\x00"}, "a file compressed by xz", unpack},
		{placed{0, "\x28\xb5\x2f\xfd"}, "a file compressed by zstd", unpack},
		{placed{0, "\x04\x22\x4d\x18"}, "a file compressed by lz4", unpack},
		{placed{0, "\x02\x21\x4c\x18"}, "a file compressed by lz4", unpack},
		{placed{0, "LZIP\x01"}, "a file compressed by lzip", unpack},
		{placed{0, "PK\x03\x04"}, "a zip archive", unpack},
		{placed{0, "PK\x05\x06"}, "an empty zip archive", unpack},
		{placed{0, "PK\x07\x08PK\x03\x04"}, "a zip archive", unpack}, // made in parts
		{placed{0, "7z\xbc\xaf\x27\x1c"}, "a 7z archive", unpack},
		{placed{0, "Rar!\x1a\x07"}, "a rar archive", unpack},
		{placed{0, "070701"}, "a cpio archive", unpack},
		{placed{0, "070702"}, "a cpio archive", unpack},
		{placed{0, "!<arch>\n"}, "an ar archive (or a Debian package, which is one)", unpack},
		{placed{0, "\xed\xab\xee\xdb"}, "an RPM package", unpack},
		{placed{0, "MSWIM\x00\x00\x00"}, "a Windows image (WIM), from which a setup makes a disk", nameDisk},
		{placed{4, "ftyp"}, "a film or picture (ISO base media, as mp4)", nameDisk},
		{placed{0, "\x1aE\xdf\xa3"}, "a film (Matroska)", nameDisk},
		{placed{0, "\x89PNG\r\n"}, "a picture (PNG)", nameDisk},
		{placed{0, "\xff\xd8\xff\xe0"}, "a picture (JPEG)", nameDisk},
		{placed{0, "%PDF-"}, "a PDF document", nameDisk},
	}
}

// recogniseText: disks have bytes that are in no text, zeros above all. What is text says what it is.
func recogniseText(head []byte) *Foreign {
	begin := bytes.ToLower(bytes.TrimSpace(bytes.TrimPrefix(head[:min(len(head), beginning)], []byte("\xef\xbb\xbf"))))
	is := func(text string) bool { return bytes.HasPrefix(begin, []byte(text)) }
	switch {
	case bytes.IndexByte(head, 0) < 0 && (is("<!doctype html") || is("<html")): // in any encoding
		return &Foreign{What: "a web page", Remedy: "open the URL in a browser to see it, and name the disk's own"}
	case !isText(head):
		return nil
	case is("version https://git-lfs.github.com/spec/"):
		return &Foreign{What: "a git-lfs pointer", Remedy: "fetch the file that it stands for (git lfs pull)"}
	case is("<?xml"), is("<"):
		return &Foreign{What: "XML", Remedy: nameDisk + ". The description of a VM (OVF) names its disk"}
	case is("{"), is("["):
		return &Foreign{What: "JSON", Remedy: nameDisk}
	case len(head) == ForeignLength && bytes.IndexByte(head, '\n') < 0:
		return nil // a disk that was filled with one letter
	}
	return &Foreign{What: "text", Remedy: nameDisk}
}

// isText: all of the head is UTF-8 without control characters, but those that move on. A disk may begin with a text for its guest.
func isText(head []byte) bool {
	text := head
	for range utf8.UTFMax { // a character that is cut
		if r, size := utf8.DecodeLastRune(text); len(head) < ForeignLength || r != utf8.RuneError || size != 1 {
			break
		}
		text = text[:len(text)-1]
	}
	for _, c := range text {
		if c < ' ' && !bytes.ContainsRune([]byte("\t\n\v\f\r\x1b"), rune(c)) || c == 0x7f {
			return false
		}
	}
	return utf8.Valid(text)
}
