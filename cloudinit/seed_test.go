package cloudinit

import (
	"bytes"
	"maps"
	"strings"
	"testing"

	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"go.yaml.in/yaml/v3"

	"github.com/vmlet/vmlet/internal/iso9660/isotest"
)

const testID = "5d2f0c2e-8f6b-4f0e-9d3a-6a4b7f1c0e11"

func seedOf(t *testing.T, c *specv1.CloudInit) []byte {
	t.Helper()
	seed, err := Seed(testID, &specv1.VirtualMachineSpec{Name: "web-1", CloudInit: c})
	if err != nil {
		t.Fatal(err)
	}
	return seed
}

func TestSeed(t *testing.T) {
	long := strings.Repeat("0123456789\n", 20000)
	for name, c := range map[string]struct {
		in   *specv1.CloudInit
		want map[string]string
	}{
		"all": {
			&specv1.CloudInit{UserData: "#cloud-config\n", MetaData: "instance-id: x\n", NetworkConfig: "version: 2\n"},
			map[string]string{"user-data": "#cloud-config\n", "meta-data": "instance-id: x\n", "network-config": "version: 2\n"},
		},
		"long": {
			&specv1.CloudInit{UserData: long, MetaData: long[:2048], NetworkConfig: "é"},
			map[string]string{"user-data": long, "meta-data": long[:2048], "network-config": "é"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			image := seedOf(t, c.in)
			label, files := isotest.Read(t, image)
			if label != VolumeLabel || !maps.Equal(files, c.want) {
				t.Errorf("volume %q has %.200q, want %.200q", label, files, c.want)
			}
		})
	}
}

func TestDefaultMetaData(t *testing.T) {
	_, files := isotest.Read(t, seedOf(t, &specv1.CloudInit{}))
	var meta map[string]string
	if err := yaml.Unmarshal([]byte(files["meta-data"]), &meta); err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"instance-id": testID, "local-hostname": "web-1"}; !maps.Equal(meta, want) {
		t.Errorf("meta-data %v, want %v", meta, want)
	}
	if text, there := files["user-data"]; !there || text != "#cloud-config\n" {
		t.Errorf("user-data %q, there: %v; want it there, and to say nothing", text, there)
	}
	if _, there := files["network-config"]; there {
		t.Error("a network-config that nobody gave")
	}
}

// TestSameBytes: a restored VM must find the disk that it had.
func TestSameBytes(t *testing.T) {
	c := &specv1.CloudInit{UserData: "a", NetworkConfig: "b"}
	first := seedOf(t, c)
	if again := seedOf(t, c); !bytes.Equal(again, first) {
		t.Fatal("the same input gives other bytes")
	}
	if other := seedOf(t, &specv1.CloudInit{UserData: "c"}); bytes.Equal(other, first) {
		t.Fatal("other input gives the same bytes")
	}
}

func TestNoCloudInit(t *testing.T) {
	if seed, err := Seed(testID, &specv1.VirtualMachineSpec{}); seed != nil || err != nil {
		t.Errorf("a seed of %d bytes, %v; want none", len(seed), err)
	}
}
