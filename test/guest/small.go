package guest

import (
	"bytes"
	"context"
	"embed"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// small are the files of [SmallDisk] beside busybox.
//
//go:embed small
var small embed.FS

// SmallDiskCmdline is the kernel command line for [SmallDisk] as the first virtio disk.
const SmallDiskCmdline = "console=ttyS0 root=/dev/vda1 quiet"

// Busybox is the path of Debian's static busybox. The error is a [*MissingError] if test/setup
// has not fetched it.
func Busybox() (string, error) { return Cached("busybox") }

const (
	// partitionStart is where partitioning tools have the first one begin, in bytes.
	partitionStart = 1 << 20
	sector         = 512
)

// SmallDisk returns a raw disk of 16 MiB with one partition: a Linux that is busybox alone. It
// boots with the kernel and initramfs of [Linux], runs a cloud-init seed's user-data if that is
// a script, has a shell on the console, and powers off when the ACPI power button is pressed.
//
// It needs mkfs.ext4. The error is a [*MissingError] if there is no busybox.
func SmallDisk(ctx context.Context) ([]byte, error) { return smallDisk(ctx, "15m", nil) }

// AgentDisk is a SmallDisk of 48 MiB in which Debian's qemu-ga runs. It has the user ann.
//
// The error is a [*MissingError] if test/setup has not fetched what it takes.
func AgentDisk(ctx context.Context) ([]byte, error) {
	agent, err := Cached("qemu-ga")
	if err != nil {
		return nil, err
	}
	return smallDisk(ctx, "47m", func(root string) error { return addAgent(ctx, root, agent) })
}

// smallDisk has a file system of that size, with what more adds to it; nil: nothing.
func smallDisk(ctx context.Context, size string, more func(root string) error) ([]byte, error) {
	busybox, err := Busybox()
	if err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp("", "vmlet-small-disk-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	root, image := filepath.Join(work, "root"), filepath.Join(work, "image")
	if err := smallRoot(ctx, root, busybox); err != nil {
		return nil, err
	}
	if more != nil {
		if err := more(root); err != nil {
			return nil, err
		}
	}
	made, err := exec.CommandContext(ctx, "mkfs.ext4", "-q", "-O", "^has_journal", "-d", root, image, size).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("mkfs.ext4: %w: %s", err, bytes.TrimSpace(made))
	}
	system, err := os.ReadFile(image)
	if err != nil {
		return nil, err
	}
	return append(masterBootRecord(len(system)), system...), nil
}

// addAgent adds a program with the libraries that it has on this machine, and what it calls.
func addAgent(ctx context.Context, root, agent string) error {
	said, err := exec.CommandContext(ctx, "ldd", agent).Output()
	if err != nil {
		return fmt.Errorf("ldd %s: %w", agent, err)
	}
	files := map[string]string{"usr/sbin/qemu-ga": agent}
	for line := range strings.Lines(string(said)) {
		for _, word := range strings.Fields(line) {
			if strings.HasPrefix(word, "/") {
				files[strings.TrimPrefix(word, "/")] = word
			}
		}
	}
	for to, from := range files {
		content, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := put(root, to, content); err != nil {
			return err
		}
	}
	for _, program := range []string{"shutdown", "chpasswd"} {
		content, err := small.ReadFile("small/" + program)
		if err != nil {
			return err
		}
		if err := put(root, "sbin/"+program, content); err != nil {
			return err
		}
	}
	for to, content := range map[string]string{
		"home/ann/here":  "",
		"etc/passwd":     "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n",
		"etc/shadow":     "root:*:19000::::::\nann:*:19000::::::\n",
		"etc/group":      "root:x:0:\nann:x:1000:\n",
		"etc/os-release": "NAME=Small\nID=small\nVERSION_ID=1\nPRETTY_NAME=\"Small Linux\"\n",
	} {
		if err := put(root, to, []byte(content)); err != nil {
			return err
		}
	}
	return nil
}

func put(root, name string, content []byte) error {
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o755)
}

// masterBootRecord is what comes before a disk's only partition, of that many bytes.
func masterBootRecord(size int) []byte {
	record := make([]byte, partitionStart)
	entry := record[446:]
	entry[4] = 0x83 // Linux
	binary.LittleEndian.PutUint32(entry[8:], partitionStart/sector)
	binary.LittleEndian.PutUint32(entry[12:], uint32(size/sector))
	record[510], record[511] = 0x55, 0xaa
	return record
}

// smallRoot fills a folder with what is to be in the file system.
func smallRoot(ctx context.Context, root, busybox string) error {
	for _, dir := range []string{"bin", "sbin", "dev", "proc", "sys", "run", "tmp", "root", "etc/acpi/PWRF"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	for to, from := range map[string]string{
		"etc/start": "small/start", "etc/inittab": "small/inittab", "etc/acpi/PWRF/00000080": "small/powerbutton",
	} {
		content, err := small.ReadFile(from)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(root, to), content, 0o755); err != nil {
			return err
		}
	}
	program, err := os.ReadFile(busybox)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, "bin/busybox"), program, 0o755); err != nil {
		return err
	}
	names, err := exec.CommandContext(ctx, busybox, "--list").Output()
	if err != nil {
		return fmt.Errorf("%s --list: %w", busybox, err)
	}
	for name := range bytes.FieldsSeq(names) {
		if string(name) == "busybox" {
			continue
		}
		if err := os.Symlink("busybox", filepath.Join(root, "bin", string(name))); err != nil {
			return err
		}
	}
	return os.Symlink("../bin/busybox", filepath.Join(root, "sbin/init"))
}
