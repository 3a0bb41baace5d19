package vmm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/vmlet/vmlet/contract"
)

// Remedy says what to do about a VMM that Info can't ask, and how on the node; empty: the error must do.
func Remedy(name string, err error) (string, contract.Advice) {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return installRemedy(name, BinaryIn(err)), ""
	case errors.Is(err, fs.ErrPermission):
		return "let this user execute it, or run as root", ""
	case errors.Is(err, context.DeadlineExceeded):
		return "the machine may be busy: ask again", contract.Advice("vmlet probe --refresh")
	}
	return "", ""
}

// BinaryIn is the file that an error of Info is about; empty: none.
func BinaryIn(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Path
	}
	return ""
}

// installRemedy names the package of a program of this name.
func installRemedy(name, binary string) string {
	if name != "qemu" {
		return "install " + name + ", or set its path in the agent's configuration"
	}
	debian, red := "qemu-system", "qemu-kvm"
	switch strings.TrimPrefix(filepath.Base(binary), "qemu-system-") {
	case "x86_64":
		debian = "qemu-system-x86"
	case "aarch64":
		debian = "qemu-system-arm"
	case "s390x", "ppc64":
		debian = "qemu-system-misc"
	}
	return fmt.Sprintf("install QEMU (Debian, Ubuntu: apt install %s; Fedora, RHEL: dnf install %s), or set qemu.binary in the agent's configuration to its path", debian, red)
}

// Sentence is a reason with what to do about it, if there is something.
func Sentence(reason, remedy string) string {
	if reason == "" || remedy == "" {
		return reason
	}
	return reason + ": " + remedy
}
