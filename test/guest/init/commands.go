package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// command does what was typed, and answers in one or more lines.
type command func(args []string) (string, error)

// answer reads the console line by line and does what it says, one command
// after the other.
func answer(out *console) {
	commands := commandsFor(out)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) == 0 {
			continue
		}
		do, ok := commands[words[0]]
		if !ok {
			out.printf("error: %s: no such command; try help", words[0])
			continue
		}
		text, err := do(words[1:])
		switch {
		case err != nil:
			out.printf("error: %v", err)
		case text != "":
			out.printf("%s", text)
		}
	}
}

func commandsFor(out *console) map[string]command {
	var memory pattern
	commands := map[string]command{
		"mem":      memory.fill,
		"verify":   memory.verify,
		"date":     func([]string) (string, error) { return "date " + time.Now().UTC().Format(time.RFC3339Nano), nil },
		"rtc":      showRTC,
		"vmgenid":  showGenerationID,
		"cat":      cat,
		"write":    write,
		"lsblk":    lsblk,
		"ip":       ip,
		"address":  setAddress,
		"carrier":  showCarrier,
		"serve":    serve,
		"greet":    greet,
		"stream":   stream,
		"balloon":  showMemory,
		"watchdog": armWatchdog,
		"vsock":    showCID,
		"echo":     func(args []string) (string, error) { return "echo " + strings.Join(args, " "), nil },
		"poweroff": func([]string) (string, error) { powerOff(out); return "", nil },
		"reboot":   func([]string) (string, error) { reboot(out, unix.LINUX_REBOOT_CMD_RESTART); return "", nil },
		"panic":    func([]string) (string, error) { return "", os.WriteFile("/proc/sysrq-trigger", []byte("c"), 0) },
	}
	names := make([]string, 0, len(commands)+1)
	for name := range commands {
		names = append(names, name)
	}
	slices.Sort(names)
	commands["help"] = func([]string) (string, error) { return "help: " + strings.Join(names, " "), nil }
	return commands
}

// maxShown bounds what one command writes to a serial line.
const maxShown = 64 << 10

// cat answers with a file and, after it, a line with its length.
func cat(args []string) (string, error) {
	if len(args) != 1 {
		return "", errors.New("usage: cat PATH")
	}
	f, err := os.Open(args[0])
	if err != nil {
		return "", err
	}
	defer f.Close()
	content := make([]byte, maxShown)
	n, err := f.Read(content)
	if n == 0 && err != nil {
		return "", err
	}
	return fmt.Sprintf("%s\ncat %d bytes", bytes.TrimRight(content[:n], "\n"), n), nil
}

// write takes "PATH WORDS", writes the words and a line end, and waits until
// they are on the disk.
func write(args []string) (string, error) {
	if len(args) < 2 {
		return "", errors.New("usage: write PATH WORDS")
	}
	f, err := os.OpenFile(args[0], os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return "", err
	}
	n, err := f.WriteString(strings.Join(args[1:], " ") + "\n")
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return "", err
	}
	return fmt.Sprintf("written %d bytes", n), nil
}

// lsblk answers with a line a disk: name, bytes, read-only or not, serial.
func lsblk([]string) (string, error) {
	disks, err := filepath.Glob("/sys/block/*")
	if err != nil {
		return "", err
	}
	lines := []string{}
	for _, disk := range disks {
		sectors, access := attribute(disk, "size"), "rw"
		if attribute(disk, "ro") == "1" {
			access = "ro"
		}
		line := fmt.Sprintf("disk %s %s sectors %s", filepath.Base(disk), sectors, access)
		if serial := attribute(disk, "serial"); serial != "" {
			line += " serial " + serial
		}
		lines = append(lines, line)
	}
	return strings.Join(append(lines, fmt.Sprintf("lsblk %d", len(disks))), "\n"), nil
}

// ip answers with a line a network interface: name, hardware address.
func ip([]string) (string, error) {
	links, err := filepath.Glob("/sys/class/net/*")
	if err != nil {
		return "", err
	}
	lines := []string{}
	for _, link := range links {
		lines = append(lines, fmt.Sprintf("link %s %s", filepath.Base(link), attribute(link, "address")))
	}
	return strings.Join(append(lines, fmt.Sprintf("ip %d", len(links))), "\n"), nil
}

// attribute reads a small file of sysfs; one that isn't there is empty.
func attribute(elem ...string) string {
	content, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content))
}

// showMemory answers with the first lines of /proc/meminfo, which a balloon
// changes.
func showMemory([]string) (string, error) {
	content, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return "", err
	}
	words := strings.Fields(string(content))
	if len(words) < 5 {
		return "", fmt.Errorf("/proc/meminfo has only %d words", len(words))
	}
	return fmt.Sprintf("memory total %s kB free %s kB", words[1], words[4]), nil
}
