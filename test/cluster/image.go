package cluster

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// PauseImage is in every cluster. Its program prints its arguments and waits
// to be ended.
const PauseImage = "vmlet.test/pause:1"

// BuildProgram builds a Go package's program so that it needs nothing else.
func BuildProgram(ctx context.Context, program, goPackage string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", program, goPackage)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		if why := context.Cause(ctx); why != nil {
			err = why
		}
		return fmt.Errorf("building %s: %w\n%s", goPackage, err, bytes.TrimSpace(out))
	}
	return nil
}

// ProgramImage writes an image that has a static program and nothing else, as
// a tar for [Cluster.LoadImage]. reference is its full name, with a tag.
func ProgramImage(tarFile, reference, program string) error {
	content, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	name := filepath.Base(program)
	layer, err := tarOf(file{name, 0o755, content})
	if err != nil {
		return err
	}
	sum := sha256.Sum256(layer)
	type object = map[string]any
	config, err := json.Marshal(object{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": object{"Entrypoint": []string{"/" + name}},
		"rootfs": object{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]object{{
		"Config": "config.json", "RepoTags": []string{reference}, "Layers": []string{"layer.tar"},
	}})
	if err != nil {
		return err
	}
	all, err := tarOf(file{"manifest.json", 0o644, manifest}, file{"config.json", 0o644, config}, file{"layer.tar", 0o644, layer})
	if err != nil {
		return err
	}
	return os.WriteFile(tarFile, all, 0o644)
}

type file struct {
	name    string
	mode    int64
	content []byte
}

func tarOf(files ...file) ([]byte, error) {
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return buffer.Bytes(), err
}
