package monitor

import (
	"encoding/json"
	"testing"
	"time"
)

// FuzzStats: numbers of a VMM and its guest may be anything; what is made of them are
// counters in their bounds.
func FuzzStats(f *testing.F) {
	f.Add([]byte(`[{"qdev":"/machine/peripheral/disk0-device/virtio-backend","stats":{"rd_operations":1,"rd_bytes":18446744073709551615,"rd_total_time_ns":-1}}]`),
		[]byte(`{"last-update":1000,"stats":{"stat-total-memory":1e99,"stat-swap-in":"x"}}`))
	f.Add([]byte(`[{"qdev":"disk65535-device","stats":{"flush_operations":9223372036854775807}},null]`), []byte(`{"last-update":9223372036854775807}`))
	f.Fuzz(func(t *testing.T, blocks, guest []byte) {
		var devices []blockStats
		if json.Unmarshal(blocks, &devices) == nil {
			seen := make(map[int]bool)
			for _, s := range diskSamples(devices) {
				if seen[s.Index] || s.Index < 0 || s.Index >= maxDisks {
					t.Errorf("disk %d", s.Index)
				}
				seen[s.Index] = true
				for _, d := range []*time.Duration{s.ReadTime, s.WriteTime, s.FlushingTime} {
					if d != nil && *d < 0 {
						t.Errorf("disk %d took %v", s.Index, *d)
					}
				}
			}
		}
		var stats guestStats
		if json.Unmarshal(guest, &stats) != nil {
			return
		}
		if m := stats.memory(time.Unix(1000, 0)); m != nil && m.Updated.Sub(time.Unix(1000, 0)).Abs() > statsBelief {
			t.Errorf("memory as of %v", m.Updated)
		}
	})
}
