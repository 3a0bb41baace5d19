package nodeobject

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/capabilities/labels"
	"github.com/vmlet/vmlet/contract"
)

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func TestReadCPUManager(t *testing.T) {
	path := filepath.Join(t.TempDir(), cpuManagerState)
	if _, err := readCPUManager(path); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	for text, want := range map[string]string{
		`{"policyName":"static","defaultCpuSet":"0-3","entries":{"uid":{"c":"2"}},"checksum":1}`: "true",
		`{"policyName":"none","defaultCpuSet":""}`:                                               "false",
		`{}`:  "names no policy",
		``:    "EOF",
		`[1]`: "cannot unmarshal",
		`{"a":"` + strings.Repeat("x", maxCPUManagerState) + `"}`: "EOF",
	} {
		put(t, path, text)
		static, err := readCPUManager(path)
		switch {
		case want == "true" || want == "false":
			if err != nil || static != (want == "true") {
				t.Errorf("%.40s: %v, %v", text, static, err)
			}
		case err == nil || !strings.Contains(err.Error(), want):
			t.Errorf("%.40s: %v, want %q", text, err, want)
		}
	}
}

// The file may come later, be replaced and be damaged.
func TestFollowCPUManager(t *testing.T) {
	path := filepath.Join(t.TempDir(), cpuManagerState)
	ctx, cancel := context.WithCancel(t.Context())
	told, ended := make(chan bool), make(chan struct{})
	go func() {
		FollowCPUManager(ctx, path, func(static bool) {
			select {
			case told <- static:
			case <-ctx.Done():
			}
		}, slog.New(slog.NewTextHandler(t.Output(), nil)))
		close(ended)
	}()
	defer func() { cancel(); <-ended }()
	expect := func(want bool) {
		for static := range told { // it may be told more than once
			if static == want {
				return
			}
		}
	}
	put(t, path, `{"policyName":"none"}`)
	expect(false)
	put(t, path, `nonsense`)
	put(t, path, `{"policyName":"static"}`)
	expect(true)
}

// madeUp is a source that is told its facts, and keeps what it was asked with.
type madeUp struct {
	facts    *Value[Facts]
	previous *Value[map[string]string]
}

func (m madeUp) Facts(_ context.Context, previous map[string]string) (Facts, error) {
	m.previous.Set(maps.Clone(previous))
	f, _ := m.facts.Get()
	if f.Labels == nil {
		return f, ErrNoFacts
	}
	return f, nil
}

func (m madeUp) Changed() <-chan struct{} {
	_, changed := m.facts.Get()
	return changed
}

func TestWriteFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "features.d", "vmlet")
	source := madeUp{NewValue(Facts{}), NewValue[map[string]string](nil)}
	cfg := FileConfig{Path: path, Source: source}
	if err := writeFile(t.Context(), cfg); !errors.Is(err, ErrNoFacts) {
		t.Fatal(err)
	}
	source.facts.Set(*facts(map[string]string{"node.vmlet.io/vmm": "qemu"}))
	if err := writeFile(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "mkdir -p") {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"node.vmlet.io/vmm": "qemu", contract.LabelSchedulable: "true", contract.LabelCPUManager: "false"}
	expect := func() os.FileInfo {
		t.Helper()
		if err := writeFile(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		if got, err := labels.ReadNFD(path); err != nil || !maps.Equal(got, want) {
			t.Fatalf("%v, %v: want %v", got, err, want)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	first := expect()
	if !os.SameFile(first, expect()) {
		t.Error("the file was written though nothing has changed")
	}
	if had, _ := source.previous.Get(); !maps.Equal(had, want) {
		t.Errorf("asked with %v", had)
	}
	// What is not known stays as it is.
	next := facts(map[string]string{"node.vmlet.io/vmm": "x"})
	next.CPUManager = nil
	source.facts.Set(*next)
	want["node.vmlet.io/vmm"] = "x"
	expect()
}

// KeepFile follows what changes, and beside a virt-handler leaves the file.
func TestKeepFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vmlet")
	source := madeUp{NewValue(*facts(map[string]string{"node.vmlet.io/vmm": "one"})), NewValue[map[string]string](nil)}
	neighbour := newTestNeighbour(t, false)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		KeepFile(ctx, FileConfig{Path: path, Source: source, Neighbour: neighbour, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
		close(ended)
	}()
	defer func() { cancel(); <-ended }()
	until := func(vmm string) {
		t.Helper()
		for patience := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
			got, err := labels.ReadNFD(path)
			if err == nil && got["node.vmlet.io/vmm"] == vmm {
				return
			}
			if time.Now().After(patience) {
				t.Fatalf("%v, %v: want %s", got, err, vmm)
			}
		}
	}
	neighbour.take(Standing{Known: true})
	until("one")
	source.facts.Set(*facts(map[string]string{"node.vmlet.io/vmm": "two"}))
	until("two")
	neighbour.take(Standing{Known: true, Aside: true, Reason: "its pod runs"})
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	source.facts.Set(*facts(map[string]string{"node.vmlet.io/vmm": "three"}))
	neighbour.take(Standing{Known: true})
	until("three")
}
