package contract

import (
	"encoding/json"
	"strings"
)

// Imported says that a claim is filled: the record that the importer writes as the termination message of its
// container.
type Imported struct {
	// Claim is the claim's UID.
	Claim string `json:"imported"`
}

// Encode returns the record in JSON.
func (i Imported) Encode() []byte {
	text, err := json.Marshal(i)
	if err != nil {
		return nil // a string alone, which can be encoded
	}
	return text
}

// ReadImported reads the termination message of an importer's container; none: the claim is not filled. The importer
// of an earlier vmlet, whose pod a controller may find, says "imported " and the UID.
func ReadImported(message string) (i Imported, is bool) {
	text := strings.TrimSpace(message)
	if claim, is := strings.CutPrefix(text, "imported "); is {
		return Imported{claim}, claim != ""
	}
	if json.Unmarshal([]byte(text), &i) != nil {
		return Imported{}, false
	}
	return i, i.Claim != ""
}
