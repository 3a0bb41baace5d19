package disk

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// qemuImg runs qemu-img in a folder, and skips the test where there is none.
func qemuImg(t *testing.T, dir string, args ...string) {
	t.Helper()
	path, err := exec.LookPath("qemu-img")
	if err != nil {
		t.Skip(err)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("qemu-img %q: %v\n%s", args, err, out)
	}
}

func probePath(t *testing.T, path string) Info {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := Probe(f)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func TestQemuImgFormats(t *testing.T) {
	for _, format := range []Format{Raw, QCOW2, QCOW, QED, VMDK, VDI, VHDX, VPC, Parallels} {
		t.Run(string(format), func(t *testing.T) {
			dir := t.TempDir()
			qemuImg(t, dir, "create", "-q", "-f", string(format), "i", "4M")
			info := probePath(t, filepath.Join(dir, "i"))
			if info.Format != format {
				t.Errorf("taken for %s", info.Format)
			}
			if (format == Raw || format == QCOW2) && info.VirtualSize != 4<<20 {
				t.Errorf("virtual size %d", info.VirtualSize)
			}
		})
	}
}

func TestQemuImgQCOW2(t *testing.T) {
	tests := []struct {
		name string
		make [][]string
		want Header
	}{
		{"plain", [][]string{{"create", "-q", "-f", "qcow2", "i", "1G"}},
			Header{Version: 3, VirtualSize: 1 << 30, ClusterSize: 65536}},
		{"version 2", [][]string{{"create", "-q", "-f", "qcow2", "-o", "compat=0.10", "i", "1G"}},
			Header{Version: 2, VirtualSize: 1 << 30, ClusterSize: 65536}},
		{"version 2 over another", [][]string{{"create", "-q", "b", "1M"}, {"create", "-q", "-f", "qcow2", "-o", "compat=0.10", "-b", "b", "-F", "raw", "i"}},
			Header{Version: 2, VirtualSize: 1 << 20, ClusterSize: 65536, BackingFile: "b", BackingFormat: "raw"}},
		{"smallest clusters", [][]string{{"create", "-q", "-f", "qcow2", "-o", "cluster_size=512", "i", "1M"}},
			Header{Version: 3, VirtualSize: 1 << 20, ClusterSize: 512}},
		{"largest clusters, extended L2, zstd", [][]string{{"create", "-q", "-f", "qcow2", "-o", "cluster_size=2M,extended_l2=on,compression_type=zstd", "i", "1M"}},
			Header{Version: 3, VirtualSize: 1 << 20, ClusterSize: 2 << 20}},
		{"over another", [][]string{{"create", "-q", "b b", "1M"}, {"create", "-q", "-f", "qcow2", "-b", "b b", "-F", "raw", "i"}},
			Header{Version: 3, VirtualSize: 1 << 20, ClusterSize: 65536, BackingFile: "b b", BackingFormat: "raw"}},
		{"over JSON", [][]string{{"create", "-q", "b", "1M"}, {"create", "-q", "-f", "qcow2", "-b", `json:{"driver":"raw","file":{"driver":"file","filename":"b"}}`, "-F", "raw", "i"}},
			Header{Version: 3, VirtualSize: 1 << 20, ClusterSize: 65536, BackingFile: `json:{"driver":"raw","file":{"driver":"file","filename":"b"}}`, BackingFormat: "raw"}},
		{"data outside", [][]string{{"create", "-q", "-f", "qcow2", "-o", "data_file=d.raw,data_file_raw=on", "i", "1M"}},
			Header{Version: 3, VirtualSize: 1 << 20, ClusterSize: 65536, ExternalData: true, DataFile: "d.raw", RawExternalData: true}},
		{"encrypted", [][]string{{"create", "-q", "-f", "qcow2", "--object", "secret,id=s,data=x", "-o", "encrypt.format=aes,encrypt.key-secret=s", "i", "1M"}},
			Header{Version: 3, VirtualSize: 1 << 20, ClusterSize: 65536, Encryption: "aes"}},
		{"snapshots", [][]string{{"create", "-q", "-f", "qcow2", "i", "1M"}, {"snapshot", "-c", "a", "i"}, {"snapshot", "-c", "b", "i"}},
			Header{Version: 3, VirtualSize: 1 << 20, ClusterSize: 65536, Snapshots: 2}},
		{"bitmap", [][]string{{"create", "-q", "-f", "qcow2", "i", "1M"}, {"bitmap", "--add", "i", "m"}},
			Header{Version: 3, VirtualSize: 1 << 20, ClusterSize: 65536}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, args := range tt.make {
				qemuImg(t, dir, args...)
			}
			got := *probePath(t, filepath.Join(dir, "i")).Header
			if !strings.HasPrefix(got.Sum, "fnv128a:") {
				t.Errorf("sum %q", got.Sum)
			}
			got.Sum = ""
			if got != tt.want {
				t.Errorf("header\n%+v, want\n%+v", got, tt.want)
			}
		})
	}
}

// What the checks are for: a backing file under a real image, named and not, down the chain.
func TestQemuImgChain(t *testing.T) {
	dir := t.TempDir()
	qemuImg(t, dir, "create", "-q", "base", "1M")
	qemuImg(t, dir, "create", "-q", "-f", "qcow2", "-b", "base", "-F", "raw", "middle")
	qemuImg(t, dir, "create", "-q", "-f", "qcow2", "-b", "middle", "-F", "qcow2", "top")
	at := func(name string, format Format) Image { return Image{filepath.Join(dir, name), format} }
	walk := func(e Expectation) error {
		for ok := true; ok; e, ok = e.Below() {
			if err := Check(probePath(t, e.Path), e); err != nil {
				return err
			}
		}
		return nil
	}
	whole := Expectation{Field: "disks[0].path", Image: at("top", QCOW2), Backing: []Image{at("middle", QCOW2), at("base", Raw)}}
	if err := walk(whole); err != nil {
		t.Error(err)
	}
	for name, backing := range map[string][]Image{
		"none named":     nil,
		"middle only":    {at("middle", QCOW2)},
		"wrong order":    {at("base", Raw), at("middle", QCOW2)},
		"as raw":         {at("middle", Raw), at("base", Raw)},
		"one more named": {at("middle", QCOW2), at("base", QCOW2), at("base", Raw)},
	} {
		e := whole
		e.Backing = backing
		if err := walk(e); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// Changing an image the usual ways must show in its header's sum even where size and times don't tell.
func TestQemuImgSum(t *testing.T) {
	dir := t.TempDir()
	qemuImg(t, dir, "create", "-q", "-f", "qcow2", "i", "1M")
	seen := map[string]string{}
	for _, step := range []struct{ name, args string }{
		{"new", ""}, {"snapshot", "snapshot -c a i"}, {"resize", "resize -q i 2G"}, {"amend", "amend -f qcow2 -o lazy_refcounts=on i"},
	} {
		if step.args != "" {
			qemuImg(t, dir, strings.Fields(step.args)...)
		}
		sum := probePath(t, filepath.Join(dir, "i")).Header.Sum
		if other, ok := seen[sum]; ok {
			t.Errorf("after %s the sum is that after %s", step.name, other)
		}
		seen[sum] = step.name
	}
	before := probePath(t, filepath.Join(dir, "i")).Header.Sum
	qemuImg(t, dir, "check", "-q", "i")
	if after := probePath(t, filepath.Join(dir, "i")).Header.Sum; after != before {
		t.Error("a check that only reads changed the sum")
	}
}
