package instance

import "strings"

// maxMessage bounds what a condition or an event quotes of others, in bytes: an event has no
// room for more.
const maxMessage = 1024

// clip cuts a text that has more than max bytes, between characters.
func clip(text string, max int) string {
	text = strings.ToValidUTF8(text, "")
	if len(text) <= max {
		return text
	}
	return strings.Clone(strings.ToValidUTF8(text[:max], ""))
}

// sentence makes one line of a text, and bounds it.
func sentence(text string) string {
	return clip(strings.Join(strings.Fields(clip(text, 4*maxMessage)), " "), maxMessage)
}
