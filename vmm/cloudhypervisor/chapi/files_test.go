package chapi_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
)

// written makes n files, each of which holds its number.
func written(t *testing.T, n int) []*os.File {
	t.Helper()
	var files []*os.File
	for i := range n {
		f, err := os.Create(filepath.Join(t.TempDir(), "file"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		if _, err := f.WriteString(strings.Repeat("x", i+1)); err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return files
}

// checkFiles reads the files that came, which must be those of written in order.
func checkFiles(t *testing.T, got []*os.File, want int) {
	t.Helper()
	if len(got) != want {
		t.Fatalf("%d files came, want %d", len(got), want)
	}
	for i, f := range got {
		content, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<10))
		if err != nil || len(content) != i+1 {
			t.Errorf("file %d has %q, %v", i, content, err)
		}
		f.Close()
	}
}

func TestAddNetFiles(t *testing.T) {
	client, seen := replying(t, response(200, `{"id":"net0","bdf":"0000:00:06.0"}`))
	taps := written(t, 2)
	added, err := client.AddNet(testContext(t), chapi.Net{PCI: chapi.PCI{ID: "net0"}}, taps...)
	if err != nil || added.ID != "net0" || added.Address != "0000:00:06.0" {
		t.Fatalf("%+v, %v", added, err)
	}
	e := <-seen
	checkFiles(t, e.files, 2)
	compareGolden(t, "testdata/vm.add-net-files.request", e.request)
	if _, err := taps[0].Stat(); err != nil {
		t.Errorf("the caller's file: %v", err)
	}
}

func TestRestoreFiles(t *testing.T) {
	client, seen := replying(t, noContent)
	taps := written(t, 3)
	err := client.Restore(testContext(t), chapi.Restore{Folder: "/saved/one", Nets: []chapi.RestoreNet{
		{ID: "net0", Taps: taps[:1]}, {ID: "net1", Taps: taps[1:]},
	}})
	if err != nil {
		t.Fatal(err)
	}
	e := <-seen
	checkFiles(t, e.files, 3)
	compareGolden(t, "testdata/vm.restore-files.request", e.request)
}

// TestFilesWithLongRequest: the server reads 1,024 bytes at a time, and the kernel
// splits a long message; the files come once and whole all the same.
func TestFilesWithLongRequest(t *testing.T) {
	client, seen := replying(t, noContent)
	long := chapi.Net{PCI: chapi.PCI{ID: strings.Repeat("n", 50_000)}}
	if _, err := client.AddNet(testContext(t), long, written(t, chapi.MaxFiles)...); err != nil {
		t.Fatal(err)
	}
	checkFiles(t, (<-seen).files, chapi.MaxFiles)
}

// TestSmallSendBuffer: a message that doesn't fit is sent on when there is room.
func TestSmallSendBuffer(t *testing.T) {
	got := make(chan exchange, 1)
	path := filepath.Join(t.TempDir(), "api")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		conn, err := listener.AcceptUnix()
		if err != nil {
			return
		}
		defer conn.Close()
		e, err := receive(conn)
		if err != nil {
			t.Error(err)
		}
		io.WriteString(conn, noContent)
		got <- e
	}()
	client := chapi.New(func(ctx context.Context) (net.Conn, error) {
		conn, err := dialer(path)(ctx)
		if err == nil {
			err = conn.(*net.UnixConn).SetWriteBuffer(1) // the kernel makes it its least
		}
		return conn, err
	})
	if _, err := client.AddNet(testContext(t), chapi.Net{PCI: chapi.PCI{ID: strings.Repeat("n", 50_000)}}, written(t, 2)...); err != nil {
		t.Fatal(err)
	}
	checkFiles(t, (<-got).files, 2)
}

func TestFilesRefused(t *testing.T) {
	client := listen(t, func(*net.UnixConn) {})
	closed := written(t, 1)
	closed[0].Close()
	piped := chapi.New(func(context.Context) (net.Conn, error) {
		near, far := net.Pipe()
		t.Cleanup(func() { far.Close() })
		return near, nil
	})
	for name, do := range map[string]func() error{
		"closed file": func() error { _, err := client.AddNet(testContext(t), chapi.Net{}, closed...); return err },
		"too many": func() error {
			_, err := client.AddNet(testContext(t), chapi.Net{}, make([]*os.File, chapi.MaxFiles+1)...)
			return err
		},
		"queues": func() error {
			_, err := client.AddNet(testContext(t), chapi.Net{NumQueues: 2}, written(t, 2)...)
			return err
		},
		"name and files": func() error {
			_, err := client.AddNet(testContext(t), chapi.Net{Tap: "tap0"}, written(t, 1)...)
			return err
		},
		"no unix socket": func() error { _, err := piped.AddNet(testContext(t), chapi.Net{}, written(t, 1)...); return err },
	} {
		t.Run(name, func(t *testing.T) {
			if err := do(); !errors.Is(err, chapi.ErrNotSent) {
				t.Errorf("%v, want ErrNotSent", err)
			} else {
				t.Log(err)
			}
		})
	}
}
