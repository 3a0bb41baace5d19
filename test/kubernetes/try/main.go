// Command try says what the container that it runs in can do, for tests to read.
//
//	try          prints it
//	try stay     serves it on :8080, and on 127.0.0.1:8081, until it is ended
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/test/kubernetes/report"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "stay" {
		stay()
		return
	}
	if err := json.NewEncoder(os.Stdout).Encode(look()); err != nil {
		os.Exit(1)
	}
}

// stay ends at once when told to: as a container's first process it would else
// not hear of it.
func stay() {
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(look()) })
	for _, address := range []string{":8080", "127.0.0.1:8081"} {
		go func() {
			err := http.ListenAndServe(address, handler)
			fmt.Fprintln(os.Stderr, "try:", err)
			os.Exit(1)
		}()
	}
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM, syscall.SIGINT)
	<-told
}

func look() report.Report {
	r := report.Report{
		UID: os.Getuid(), GID: os.Getgid(), Devices: devices(), Given: make(map[string]string),
		KVM: open("/dev/kvm"), OwnKVM: openOwn(),
	}
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) == nil {
		for cpu := range 1024 {
			if set.IsSet(cpu) {
				r.CPUs = append(r.CPUs, cpu)
			}
		}
	}
	for _, variable := range os.Environ() {
		if name, value, _ := strings.Cut(variable, "="); strings.Contains(name, "_RESOURCE_") {
			r.Given[name] = value
		}
	}
	return r
}

func devices() []string {
	// The Open Container Initiative's runtime specification, "Default devices".
	usual := []string{"null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts/ptmx", "console"}
	found := []string{}
	_ = filepath.WalkDir("/dev", func(path string, d fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, "/dev/")
		if err == nil && d.Type()&fs.ModeCharDevice != 0 && !slices.Contains(usual, name) {
			found = append(found, name)
		}
		return nil // a folder that can't be read has nothing for us
	})
	return found
}

// kvmGetAPIVersion is KVM_GET_API_VERSION of linux/kvm.h.
const kvmGetAPIVersion = 0xae00

func open(path string) report.Attempt {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return report.Attempt{Error: name(err)}
	}
	defer unix.Close(fd)
	version, err := unix.IoctlRetInt(fd, kvmGetAPIVersion)
	if err != nil {
		return report.Attempt{Error: name(err)}
	}
	return report.Attempt{Version: version}
}

// openOwn makes the node of /dev/kvm (misc device 232 of linux/miscdevice.h):
// what keeps a container with the right to make nodes from the device is its
// devices cgroup alone.
func openOwn() report.Attempt {
	path := filepath.Join("/dev", fmt.Sprintf("own-kvm-%d", os.Getpid()))
	if err := unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(10, 232))); err != nil {
		return report.Attempt{Error: "mknod: " + name(err)}
	}
	defer os.Remove(path)
	return open(path)
}

// name is the errno's: "EPERM".
func name(err error) string {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return unix.ErrnoName(errno)
	}
	return err.Error()
}
