package spec

import "testing"

// FuzzQuantity: what is taken for a size comes back as the same size.
func FuzzQuantity(f *testing.F) {
	for _, s := range []string{"", "0", "512Mi", "1.5Gi", "4G", "8191Pi", "8192Pi", "0.1", "1e3", "-1", "1_0", "1/2", "0x10", ".5Ki", "5.Ki", "kMi", "99999999999999999999999999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		bytes, err := ParseQuantity(text)
		if err != nil {
			return
		}
		if bytes > 1<<63-1 {
			t.Errorf("%q is %d", text, bytes)
		}
		if again, err := ParseQuantity(FormatQuantity(bytes)); err != nil || again != bytes {
			t.Errorf("%q is %d, written %s, and that %d, %v", text, bytes, FormatQuantity(bytes), again, err)
		}
	})
}
