// Package machineid knows a machine by its hardware: the agent on it and the controller, which reads of it in its Node, say
// the same. It must not know what either makes of that.
package machineid

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// identityBytes is how much of the hash is kept: too little to guess a serial number by, and enough to tell a machine from
// the one that takes its place.
const identityBytes = 4

// Of is how a machine is known by its system UUID (SMBIOS): a hash, in hexadecimal digits, as it is shown to
// readers that may not see the UUID, which may have the machine's serial number in it. The first three fields of one are in the one
// byte order or the other, by what reads it and by the firmware's version: both are the same machine. Empty: that is no UUID
// of a machine.
func Of(uuid string) string {
	text := strings.ToLower(strings.ReplaceAll(strings.TrimSpace(uuid), "-", ""))
	if strings.Trim(text, "0") == "" || strings.Trim(text, "f") == "" {
		return ""
	}
	if b, err := hex.DecodeString(text); err == nil && len(b) == 16 {
		for _, field := range [][]byte{b[:4], b[4:6], b[6:8]} {
			slices.Reverse(field)
		}
		text = min(text, hex.EncodeToString(b))
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:identityBytes])
}
