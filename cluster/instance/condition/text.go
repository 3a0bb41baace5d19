package condition

import "strings"

// MaxMessage bounds what a condition or an event quotes of others, in bytes: an event has no
// room for more.
const MaxMessage = 1024

// MaxGuestText bounds a word of the guest's, or of an agent's or kubelet's, in bytes.
const MaxGuestText = 128

// Clip cuts a text that has more than max bytes, between characters.
func Clip(text string, max int) string {
	text = strings.ToValidUTF8(text, "")
	if len(text) <= max {
		return text
	}
	return strings.Clone(strings.ToValidUTF8(text[:max], ""))
}

// Sentence makes one line of a text, and bounds it.
func Sentence(text string) string {
	return Clip(strings.Join(strings.Fields(Clip(text, 4*MaxMessage)), " "), MaxMessage)
}
