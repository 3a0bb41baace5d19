package usage

import (
	"strconv"
	"testing"
	"time"
)

func TestWaitSum(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"wait_sum : 12.345678\n":                                 12345678,
		"se.statistics.wait_sum                       :  1.0\nx": time.Millisecond,
		"a : 1\nwait_sum:0.000001\n":                             1,
		"":                                                       -1,
		"wait_sum : -1\n":                                        -1,
		"wait_sum : NaN\n":                                       -1,
		"wait_sum : 1e300\n":                                     -1,
		"wait_summary : 1\niowait_sum : 2\nwait_sum without colons": -1,
	} {
		got := waitSum(text)
		if (got == nil) != (want < 0) || (got != nil && *got != want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func FuzzFields(f *testing.F) {
	f.Add("100 (a) b) S 99 1 1 0 -1 1 1 1 1 1 7 8 1 1 1 1 3 1", "usage_usec")
	f.Add("wait_sum : 1.5\nusage_usec 7\n", "usage_usec")
	f.Fuzz(func(t *testing.T, text, key string) {
		if st, ok := parseStat(text); ok && (st.user < 0 || st.system < 0 || st.user+st.system < 0 || st.parent < 0) {
			t.Errorf("%+v", st)
		}
		if w := waitSum(text); w != nil && *w < 0 {
			t.Errorf("%v", *w)
		}
		if n, ok := keyed(text, key); ok && n > 1<<63-1 {
			t.Errorf("%d", n)
		}
		if n, ok := field(text, 2); ok && strconv.FormatUint(n, 10) == "" {
			t.Error(n)
		}
	})
}
