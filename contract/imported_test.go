package contract

import "testing"

// TestReadImported: a claim is filled if its importer has said so, in the record or as earlier ones do.
func TestReadImported(t *testing.T) {
	for message, want := range map[string]string{
		string(Imported{"uid"}.Encode()): "uid",
		`{"imported":"uid","more":1}`:    "uid",
		"imported uid\n":                 "uid",
		"imported ":                      "",
		"imported":                       "",
		"":                               "",
		"{}":                             "",
		`{"imported":`:                   "",
		"no room":                        "",
	} {
		got, is := ReadImported(message)
		if got.Claim != want {
			t.Errorf("%q: claim %q, want %q", message, got.Claim, want)
		}
		if is != (want != "") {
			t.Errorf("%q: %t", message, is)
		}
	}
}
