package disk

import (
	"bytes"
	"fmt"
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

// Where disks have what marks them as such, in bytes.
const (
	bootSignature = 510
	gptHeader     = 512
	isoDescriptor = 16 * 2048
)

// tarMagic is where a tar archive's first header has its magic, in bytes (POSIX.1-2001, pax).
const tarMagic = 257

// textLength is how much of a file has to be text for it to be taken for text, in bytes. Disks with a signature that is text
// (Ceph's, SBD's) have zeros before that.
const textLength = 4 << 10

const (
	unpack   = "unpack it and offer the disk that is in it"
	nameDisk = "name a disk image (raw, ISO or qcow2)"
)

// RecogniseForeign tells what a file is that is surely no disk, by the head of what Recognise takes for raw; nil: it may be a disk.
// A disk may begin with anything: what has a partition table, a boot sector or a volume descriptor of ISO 9660 is one, whatever
// else it looks like. Programs and kernels (ELF) are not told from disks.
func RecogniseForeign(head []byte) *Foreign {
	if len(head) == 0 || isDisk(head) {
		return nil
	}
	for _, s := range foreignSignatures() {
		if s.in(head) {
			return &Foreign{What: s.what, Remedy: s.remedy, Tar: s.offset == tarMagic}
		}
	}
	return recogniseText(head)
}

func isDisk(head []byte) bool {
	at := func(offset int, text string) bool {
		return len(head) >= offset && bytes.HasPrefix(head[offset:], []byte(text))
	}
	return at(bootSignature, "\x55\xaa") || at(gptHeader, "EFI PART") || at(isoDescriptor+1, "CD001") || at(isoDescriptor+1, "BEA01")
}

type foreignSignature struct {
	offset       int
	bytes        string
	what, remedy string
}

func (s foreignSignature) in(head []byte) bool {
	return len(head) >= s.offset && bytes.HasPrefix(head[s.offset:], []byte(s.bytes))
}

// foreignSignatures lists the beginnings of files, from their formats' specifications. All but gzip's have four bytes or more.
// bzip2's is that of its first block.
func foreignSignatures() []foreignSignature {
	return []foreignSignature{
		{0, "\x1f\x8b\x08", "a file compressed by gzip", unpack},
		{4, "1AY&SY", "a file compressed by bzip2", unpack},
		{0, "\xfd7zXZ\x00", "a file compressed by xz", unpack},
		{0, "\x28\xb5\x2f\xfd", "a file compressed by zstd", unpack},
		{0, "\x04\x22\x4d\x18", "a file compressed by lz4", unpack},
		{0, "\x02\x21\x4c\x18", "a file compressed by lz4", unpack},
		{0, "LZIP\x01", "a file compressed by lzip", unpack},
		{0, "PK\x03\x04", "a zip archive", unpack},
		{0, "PK\x05\x06", "an empty zip archive", unpack},
		{0, "7z\xbc\xaf\x27\x1c", "a 7z archive", unpack},
		{0, "Rar!\x1a\x07", "a rar archive", unpack},
		{tarMagic, "ustar", "a tar archive (or an OVA, which is one)", unpack},
		{0, "070701", "a cpio archive", unpack},
		{0, "070702", "a cpio archive", unpack},
		{0, "!<arch>\n", "an ar archive (or a Debian package, which is one)", unpack},
		{0, "\xed\xab\xee\xdb", "an RPM package", unpack},
		{0, "MSWIM\x00\x00\x00", "a Windows image (WIM), of which a setup makes a disk", nameDisk},
		{4, "ftyp", "a film or picture (ISO base media, as mp4)", nameDisk},
		{0, "\x1aE\xdf\xa3", "a film (Matroska)", nameDisk},
		{0, "\x89PNG\r\n", "a picture (PNG)", nameDisk},
		{0, "\xff\xd8\xff\xe0", "a picture (JPEG)", nameDisk},
		{0, "%PDF-", "a PDF document", nameDisk},
	}
}

// recogniseText: disks have bytes that are in no text, zeros above all. What is text says what it is.
func recogniseText(head []byte) *Foreign {
	begin := bytes.ToLower(bytes.TrimSpace(bytes.TrimPrefix(head[:min(len(head), textLength)], []byte("\xef\xbb\xbf"))))
	is := func(text string) bool { return bytes.HasPrefix(begin, []byte(text)) }
	switch {
	case is("<!doctype html"), is("<html"):
		return &Foreign{What: "a web page", Remedy: "open the URL in a browser to see it, and name the disk's own"}
	case !isText(head):
		return nil
	case is("version https://git-lfs.github.com/spec/"):
		return &Foreign{What: "a git-lfs pointer", Remedy: "fetch the file that it stands for (git lfs pull)"}
	case is("<?xml"), is("<"):
		return &Foreign{What: "XML", Remedy: nameDisk + ". The description of a VM (OVF) names its disk"}
	case is("{"), is("["):
		return &Foreign{What: "JSON", Remedy: nameDisk}
	}
	return &Foreign{What: "text", Remedy: nameDisk}
}

// isText: UTF-8 without control characters, but those that move on.
func isText(head []byte) bool {
	text := head
	if len(head) > textLength {
		text = head[:textLength]
		for range utf8.UTFMax { // a character that is cut
			if r, size := utf8.DecodeLastRune(text); r != utf8.RuneError || size != 1 {
				break
			}
			text = text[:len(text)-1]
		}
	}
	for _, c := range text {
		if c < ' ' && !bytes.ContainsRune([]byte("\t\n\v\f\r\x1b"), rune(c)) || c == 0x7f {
			return false
		}
	}
	return utf8.Valid(text)
}
