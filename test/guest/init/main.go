// Command init is the only program of the Linux guest that vmlet's tests boot.
//
// As process 1 it loads the kernel modules that come with it in /modules,
// counts on the console ("count N UNIXTIME"), answers commands typed there (see
// help), speaks the QEMU guest agent's protocol, and powers off when the ACPI
// power button is pressed. With root=DEVICE on the kernel's command line it
// loads the modules, mounts that device (with ro read-only) and hands over to the
// init there. With resume=DEVICE a kernel that has suspended itself to that swap
// goes on before.
//
// Kernel command line: vmlet.interval=DURATION between two counts, 200ms
// unless told. vmlet.witness=DEVICE has it count on that disk, too (see
// guest.ReadWitness).
package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// console writes whole lines, so that those of different goroutines don't mix.
type console struct {
	mu   sync.Mutex
	file *os.File
}

func (c *console) printf(format string, args ...any) {
	line := strings.TrimRight(fmt.Sprintf(format, args...), "\n") + "\n"
	c.mu.Lock()
	defer c.mu.Unlock()
	// Nobody is left to be told of a console that takes no more.
	_, _ = c.file.WriteString(line)
}

func main() {
	out := &console{file: os.Stdout}
	for _, m := range []struct{ kind, path string }{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"},
	} {
		if err := mount(m.kind, m.path); err != nil {
			out.printf("error: %v", err)
		}
	}
	quietConsole(out)
	out.printf("vmlet guest up: %s", kernelRelease())
	loadModules(out, "/modules")

	options := kernelOptions()
	if device := options["resume"]; device != "" {
		if err := resume(device); err != nil {
			out.printf("error: resume=%s: %v", device, err)
		}
	}
	if device := options["root"]; device != "" {
		_, readOnly := options["ro"]
		err := handOver(device, options["rootfstype"], options["init"], readOnly)
		out.printf("error: handing over to root=%s: %v", device, err)
		powerOff(out)
	}
	watchPowerButton(out)
	go serveAgent(out)
	go answer(out)
	every, err := time.ParseDuration(options["vmlet.interval"])
	if err != nil || every <= 0 {
		every = 200 * time.Millisecond
	}
	if device := options["vmlet.witness"]; device != "" {
		go func() { out.printf("error: witness on %s: %v", device, witness(device, every)) }()
	}
	count(out, every)
}

func mount(kind, path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(kind, path, kind, 0, ""); err != nil && err != unix.EBUSY {
		return fmt.Errorf("mounting %s on %s: %w", kind, path, err)
	}
	return nil
}

// quietConsole keeps the kernel's messages and the echo of what is typed from
// mixing with the lines that tests wait for. Errors still come through.
func quietConsole(out *console) {
	if err := os.WriteFile("/proc/sys/kernel/printk", []byte("3"), 0); err != nil {
		out.printf("error: %v", err)
	}
	t, err := unix.IoctlGetTermios(0, unix.TCGETS)
	if err != nil {
		out.printf("error: the console is no terminal: %v", err)
		return
	}
	t.Lflag &^= unix.ECHO
	if err := unix.IoctlSetTermios(0, unix.TCSETS, t); err != nil {
		out.printf("error: %v", err)
	}
}

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}

// kernelOptions are the words of the kernel's command line.
func kernelOptions() map[string]string {
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return nil
	}
	options := make(map[string]string)
	for _, word := range strings.Fields(string(line)) {
		name, value, _ := strings.Cut(word, "=")
		options[name] = value
	}
	return options
}

// count never returns.
func count(out *console, every time.Duration) {
	tick := time.NewTicker(every)
	for n := 0; ; n++ {
		out.printf("count %d %d", n, time.Now().Unix())
		<-tick.C
	}
}

func powerOff(out *console) { reboot(out, unix.LINUX_REBOOT_CMD_POWER_OFF) }

func reboot(out *console, how int) {
	unix.Sync()
	if err := unix.Reboot(how); err != nil {
		out.printf("error: reboot: %v", err)
	}
}
