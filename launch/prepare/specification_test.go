package prepare

import (
	"strings"
	"testing"
)

// TestReadOnlyByBus: QEMU has no read-only disk on SATA, but CD-ROMs.
func TestReadOnlyByBus(t *testing.T) {
	for disk, want := range map[string]bool{
		`{"name":"d"}`:                             true,
		`{"name":"d","bus":"virtio"}`:              true,
		`{"name":"d","bus":"sata"}`:                false,
		`{"name":"d","bus":"sata","type":"cdrom"}`: true,
	} {
		s, err := parse([]byte(`{"disks":[` + disk + `]}`))
		if err == nil {
			err = s.fill("d", result{Path: "/d.iso", Format: "raw", ReadOnly: true})
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := s.text()
		if is := strings.Contains(string(text), `"readOnly":true`); is != want || err != nil {
			t.Errorf("%s: %s, %v", disk, text, err)
		}
	}
}
