package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/agent/config"
	"github.com/vmlet/vmlet/capabilities/clusterwide"
	"github.com/vmlet/vmlet/capabilities/sources"
)

// TestUnderCluster: the cluster's word is under the node's, and one that can't be read changes nothing.
func TestUnderCluster(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cluster.yaml")
	for content, want := range map[string]string{
		"obsoleteCPUModels: {Haswell: true, Nehalem: true}": "Haswell",
		"obsoleteCPUModels: {Haswell":                       "",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		own := config.Config{Config: sources.Config{ObsoleteCPUModels: map[string]bool{"Nehalem": false}}}
		got, _ := underCluster(own, path, slog.New(slog.NewTextHandler(&log, nil)))
		if got.ObsoleteCPUModels["Haswell"] != (want != "") || got.ObsoleteCPUModels["Nehalem"] {
			t.Errorf("%s: obsolete are %v", content, got.ObsoleteCPUModels)
		}
		if said := strings.Contains(log.String(), path); said != (want == "") {
			t.Errorf("%s: logged %q", content, log.String())
		}
	}
}

// TestClusterChoosesNoDefaults: a profile of the cluster's names threads, and leaves the node's
// hypervisor and VMM as they are; the node's own profile chooses them.
func TestClusterChoosesNoDefaults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cluster.yaml")
	const content = `virtualizationProfile: {virtualizationComponents: {hypervisorDevice: /dev/mshv, vmmProcessExecutable: cloud-hypervisor, vCpuRegex: 'x(\d+)'}}`
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	got, _ := underCluster(config.Config{}, path, slog.Default())
	if c := got.Config.Complete(); c.Hypervisor != "" || len(c.VMMs) != 0 {
		t.Errorf("the node's defaults are %q and %q, want none", c.Hypervisor, c.VMMs)
	}
	if got.VirtualizationProfile.Components.VCPURegex != `x(\d+)` {
		t.Errorf("vCPUs are called %q", got.VirtualizationProfile.Components.VCPURegex)
	}
	var own config.Config
	own.VirtualizationProfile.Components.HypervisorDevice = "/dev/mshv"
	got, _ = underCluster(own, path, slog.Default())
	if c := got.Config.Complete(); c.Hypervisor != "mshv" {
		t.Errorf("the node's own profile chooses %q, want mshv", c.Hypervisor)
	}
}

// TestUntilChanged changes the file as a kubelet does, by a link to another folder.
func TestUntilChanged(t *testing.T) {
	dir := t.TempDir()
	write := func(folder, content string) {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, folder, "cluster.yaml"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(folder, filepath.Join(dir, "..new")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..new"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	write("..1", "obsoleteCPUModels: {a: true}")
	path := filepath.Join(dir, "cluster.yaml")
	if err := os.Symlink("..data/cluster.yaml", path); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := untilChanged(t.Context(), path, clusterwide.Configuration{ObsoleteCPUModels: map[string]bool{"a": true}}, slog.New(slog.DiscardHandler))
	defer cancel()
	for _, content := range []string{"{obsoleteCPUModels: {a: true}} # the same", "obsoleteCPUModels: {a"} {
		write("..2", content)
		if ctx.Err() != nil {
			t.Errorf("%s ended the agent", content)
		}
	}
	write("..3", "{}")
	<-ctx.Done()
}
