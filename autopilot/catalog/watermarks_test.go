package catalog_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The kernel begins to swap above what the kubelet evicts at: by 256 MiB or 1 % of RAM.
func TestSwapWatermarks(t *testing.T) {
	for name, c := range map[string]struct {
		config   string
		totalMiB int
		want     string
	}{
		"default of 100 MiB":     {"", 16 << 10, "212"}, // (100 + 256 - 8) / 16384
		"in the file":            {`{"evictionHard": {"memory.available": "500Mi"}}`, 16 << 10, "456"},
		"YAML":                   {"evictionHard:\n  memory.available: 1Gi\n", 16 << 10, "776"},
		"percent":                {"evictionHard: {memory.available: 5%}\n", 16 << 10, "651"},
		"1 % is more on 64 GiB":  {"", 64 << 10, "114"}, // (100 + 655 - 8) / 65536
		"no lower than default":  {"", 8 << 20, "100"},  // 1 % of 8 TiB
		"no higher than a tenth": {"evictionHard: {memory.available: 50%}\n", 16 << 10, "1000"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(path, content string) {
				path = filepath.Join(dir, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			write("kubelet.conf", c.config)
			write("meminfo", fmt.Sprintf("MemTotal:       %d kB\nMemFree:        1 kB\n", c.totalMiB<<10))
			pages := c.totalMiB << 8
			write("zoneinfo", fmt.Sprintf("Node 0, zone      DMA\n        min      1024\n        managed  %d\nNode 0, zone   Normal\n        min      1024\n        managed  %d\n", pages/2, pages-pages/2))
			write("sys/vm/watermark_scale_factor", "10\n")
			if out, err := exec.Command("sh", "assets/active/machine-config/swap-watermarks.sh", filepath.Join(dir, "kubelet.conf"), dir).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			got, err := os.ReadFile(filepath.Join(dir, "sys/vm/watermark_scale_factor"))
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != c.want+"\n" {
				t.Errorf("the factor is %swant %s", got, c.want)
			}
		})
	}
}
