package qmp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmlet/vmlet/vmm/qemu/qmp"
)

// qemuVariable lists the QEMU binaries to test with, by name or path, with commas
// or colons between them.
const qemuVariable = "VMLET_TEST_QEMU"

// forEachQEMU runs a test with every QEMU there is, or skips it.
func forEachQEMU(t *testing.T, test func(t *testing.T, binary string)) {
	names := os.Getenv(qemuVariable)
	if names == "" {
		names = "qemu-system-x86_64"
	}
	for _, name := range strings.FieldsFunc(names, func(r rune) bool { return r == ',' || r == ':' }) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			binary, err := exec.LookPath(name)
			if err != nil {
				t.Skipf("needs a real QEMU: %v; name one or more in %s", err, qemuVariable)
			}
			test(t, binary)
		})
	}
}

// qemu is a running QEMU without a machine.
type qemu struct {
	monitors []string // paths
	process  *os.Process
}

// startQEMU starts one whose monitors listen before it does, so that it can be
// dialed at once.
func startQEMU(t *testing.T, binary string, monitors int) qemu {
	t.Helper()
	q := qemu{}
	cmd := exec.Command(binary, "-machine", "none", "-S", "-nodefaults", "-display", "none")
	for i := range monitors {
		path := filepath.Join(t.TempDir(), "monitor")
		listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		listener.SetUnlinkOnClose(false)
		file, err := listener.File()
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		defer listener.Close()
		q.monitors = append(q.monitors, path)
		cmd.ExtraFiles = append(cmd.ExtraFiles, file) // descriptor 3 + i
		cmd.Args = append(cmd.Args,
			"-chardev", fmt.Sprintf("socket,id=m%d,fd=%d,server=on,wait=off", i, 3+i),
			"-mon", fmt.Sprintf("chardev=m%d,mode=control", i))
	}
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Logf("%s said: %s", binary, log.String())
		}
	})
	q.process = cmd.Process
	return q
}

func TestQEMUSchema(t *testing.T) {
	forEachQEMU(t, func(t *testing.T, binary string) {
		client := dial(t, startQEMU(t, binary, 1).monitors[0])
		schema, err := client.Schema(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		version := client.Greeting().Version
		if version.Major == 0 || len(client.Greeting().Capabilities) == 0 {
			t.Errorf("greeting: %+v", client.Greeting())
		}
		checkSchema(t, schema, version.Major)
	})
}

func TestQEMUConcurrentCalls(t *testing.T) {
	forEachQEMU(t, func(t *testing.T, binary string) {
		client := dial(t, startQEMU(t, binary, 1).monitors[0])
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for range 10 {
					var status struct{ Status string }
					if err := client.Execute(testContext(t), "query-status", nil, &status); err != nil || status.Status != "prelaunch" {
						t.Errorf("query-status: %+v, %v", status, err)
					}
				}
			})
			wg.Go(func() {
				for range 10 {
					err := client.Execute(testContext(t), "device_del", map[string]string{"id": "x"}, nil)
					if !errors.Is(err, qmp.DeviceNotFound) {
						t.Errorf("device_del: %v", err)
					}
					ctx, cancel := context.WithCancel(t.Context())
					go cancel()
					err = client.Execute(ctx, "query-version", nil, nil)
					if err != nil && !errors.Is(err, context.Canceled) {
						t.Errorf("query-version: %v", err)
					}
				}
			})
		}
		wg.Wait()
	})
}

// TestQEMUFiles: every command gets the file that was sent with it, also when many
// callers send at once.
func TestQEMUFiles(t *testing.T) {
	forEachQEMU(t, func(t *testing.T, binary string) {
		q := startQEMU(t, binary, 1)
		client := dial(t, q.monitors[0])
		dir := t.TempDir()
		var wg sync.WaitGroup
		for i := range 20 {
			path := filepath.Join(dir, fmt.Sprint("file", i))
			wg.Go(func() {
				file := writeFile(t, path, "x")
				defer file.Close()
				var added struct {
					FD int `json:"fd"`
				}
				if err := client.ExecuteWithFiles(testContext(t), "add-fd", map[string]any{"opaque": path}, &added, file); err != nil {
					t.Error(err)
					return
				}
				got, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", q.process.Pid, added.FD))
				if err != nil || got != path {
					t.Errorf("QEMU has %q, %v for %s", got, err, path)
				}
			})
			wg.Go(func() {
				if err := client.Execute(testContext(t), "query-status", nil, nil); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		var sets []json.RawMessage
		if err := client.Execute(testContext(t), "query-fdsets", nil, &sets); err != nil || len(sets) != 20 {
			t.Errorf("%d fd sets, %v", len(sets), err)
		}
	})
}

func TestQEMUQuit(t *testing.T) {
	forEachQEMU(t, func(t *testing.T, binary string) {
		testQuit(t, dial(t, startQEMU(t, binary, 1).monitors[0]))
	})
}

// testQuit: the event, the reply, the end.
func testQuit(t *testing.T, client *qmp.Client) {
	t.Helper()
	sub := client.Subscribe()
	if err := client.Execute(testContext(t), "quit", nil, nil); err != nil {
		t.Errorf("quit: %v", err)
	}
	if event := next(t, sub); event.Name != "SHUTDOWN" {
		t.Errorf("got %s, want SHUTDOWN", event.Name)
	}
	if _, err := sub.Next(testContext(t)); !errors.Is(err, qmp.ErrDisconnected) {
		t.Errorf("Next: %v", err)
	}
	<-client.Done()
	if err := client.Execute(testContext(t), "query-status", nil, nil); !errors.Is(err, qmp.ErrDisconnected) {
		t.Errorf("Execute: %v", err)
	}
}

func TestQEMUTwoMonitors(t *testing.T) {
	forEachQEMU(t, func(t *testing.T, binary string) {
		q := startQEMU(t, binary, 2)
		first, second := dial(t, q.monitors[0]), dial(t, q.monitors[1])
		sub := second.Subscribe("RESUME")
		if err := first.Execute(testContext(t), "cont", nil, nil); err != nil {
			t.Fatal(err)
		}
		next(t, sub)
		var status struct{ Running bool }
		if err := second.Execute(testContext(t), "query-status", nil, &status); err != nil || !status.Running {
			t.Errorf("the second monitor: %+v, %v", status, err)
		}
	})
}

func TestQEMUSecondClient(t *testing.T) {
	forEachQEMU(t, func(t *testing.T, binary string) {
		q := startQEMU(t, binary, 1)
		testSecondClient(t, dial(t, q.monitors[0]), q.monitors[0])
	})
}

func testSecondClient(t *testing.T, first *qmp.Client, path string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := qmp.Dial(ctx, path)
	if !errors.Is(err, qmp.ErrNoGreeting) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the second client: %v", err)
	} else if !strings.Contains(err.Error(), "another client") || !strings.Contains(err.Error(), path) {
		t.Errorf("the error doesn't help: %v", err)
	}
	if err := first.Execute(testContext(t), "query-commands", nil, nil); err != nil {
		t.Errorf("the first client has suffered: %v", err)
	}
	first.Close()
	if err := dial(t, path).Execute(testContext(t), "query-commands", nil, nil); err != nil {
		t.Errorf("the next client: %v", err)
	}
}

func TestQEMUEventOrder(t *testing.T) {
	forEachQEMU(t, func(t *testing.T, binary string) {
		client := dial(t, startQEMU(t, binary, 1).monitors[0])
		sub := client.Subscribe()
		const rounds = 20
		for range rounds {
			for _, command := range []string{"cont", "stop"} {
				if err := client.Execute(testContext(t), command, nil, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		var last time.Time
		for range rounds {
			for _, want := range []string{"RESUME", "STOP"} {
				event := next(t, sub)
				if event.Name != want || event.Timestamp.Before(last) {
					t.Errorf("got %s at %v, want %s after %v", event.Name, event.Timestamp, want, last)
				}
				last = event.Timestamp
			}
		}
	})
}

// TestQEMUKilled: the end of a VMM that dies.
func TestQEMUKilled(t *testing.T) {
	forEachQEMU(t, func(t *testing.T, binary string) {
		q := startQEMU(t, binary, 1)
		client := dial(t, q.monitors[0])
		q.process.Kill()
		<-client.Done()
		if err := client.Err(); !errors.Is(err, qmp.ErrDisconnected) {
			t.Errorf("got %v", err)
		}
	})
}
