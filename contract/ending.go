package contract

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxEnding bounds what Ending.Encode returns, in bytes: the kubelet keeps the last 4096 of a container's
// termination message (pkg/kubelet/container/runtime.go of Kubernetes).
const MaxEnding = 4096

// maxFaults bounds the faults of a record: an agent may name any number.
const maxFaults = 32

// Ending says how the VM of a pod ended: the record that its shim writes as the termination message of the
// container. Where a pod has many containers the kubelet cuts off the end of the record; the members by which
// programs decide come first.
type Ending struct {
	// Reason is one of the Guest… or Restore…; empty: the VM failed in another way.
	Reason string `json:"reason,omitempty"`
	// Image and Directory are the identifier and the directory of the memory image, of GuestSaved.
	Image     string `json:"image,omitempty"`
	Directory string `json:"directory,omitempty"`
	// Message is for people, who see the record in `kubectl describe pod`.
	Message string `json:"message,omitempty"`
	// Faults are what is wrong, if that is known in parts. Message says the same.
	Faults []Fault `json:"faults,omitempty"`
}

// Reasons of an Ending that is no failure to restore.
const (
	// GuestSaved: the VM was saved to Image.
	GuestSaved = "GuestSaved"
	// GuestSuspended: the guest suspended itself to disk.
	GuestSuspended = "GuestSuspended"
	// GuestShutdown: the guest ran, and shut down.
	GuestShutdown = "GuestShutdown"
	// GuestPanicked: the guest ran, and panicked.
	GuestPanicked = "GuestPanicked"
	// GuestUnstarted: the shim was asked to end before the guest ran.
	GuestUnstarted = "GuestUnstarted"
)

// Reasons of an Ending whose VM could not be restored, and of the instance and the VirtualMachine that follow. Other
// failures to restore have none.
const (
	// RestoreImageUsed: a guest has run from the image before.
	RestoreImageUsed = "ImageUsed"
	// RestoreImageMissing: there is no image, or not a whole one.
	RestoreImageMissing = "ImageMissing"
	// RestoreImageDamaged: its sums are wrong.
	RestoreImageDamaged = "ImageDamaged"
	// RestoreImageUnfit: it needs another vmlet, VMM, hypervisor or CPU.
	RestoreImageUnfit = "ImageUnfit"
	// RestoreDiskChanged: a disk was written to since the save.
	RestoreDiskChanged = "DiskChanged"
)

// RestoreRefused reports whether a reason is one of the Restore…: trying again ends in the same way.
func RestoreRefused(reason string) bool {
	return slices.Contains(restoreReasons(), reason)
}

func restoreReasons() []string {
	return []string{RestoreImageUsed, RestoreImageMissing, RestoreImageDamaged, RestoreImageUnfit, RestoreDiskChanged}
}

// Sentence is the record as one sentence, as shims and agents said it before there was one. Of a restore
// that failed the sentence begins with the reason.
func (e Ending) Sentence() string {
	if RestoreRefused(e.Reason) {
		return e.Reason + ": " + e.Message
	}
	return e.Message
}

// Encode returns the record in JSON, of at most MaxEnding bytes. What does not fit is left out of the faults
// first, then of the message.
func (e Ending) Encode() []byte {
	e.Message = clip(e.Message, MaxEnding/2)
	e.Faults = e.Faults[:min(len(e.Faults), maxFaults)]
	for {
		text := encode(e)
		switch {
		case len(text) <= MaxEnding:
			return text
		case len(e.Faults) > 0:
			e.Faults = e.Faults[:len(e.Faults)-1]
		case e.Message != "":
			e.Message = clip(e.Message, len(e.Message)*3/4) // escaped, it may be six times as long
		default:
			e.Image, e.Directory = "", "" // half a name is none
			e.Reason = clip(e.Reason, 64)
		}
	}
}

// encode leaves '<', '>' and '&' as they are: people read it.
func encode(e Ending) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(e); err != nil {
		return nil // strings alone, which can all be encoded
	}
	return bytes.TrimSpace(out.Bytes())
}

// clip cuts a text between characters.
func clip(text string, to int) string {
	if len(text) <= to {
		return text
	}
	for to > 0 && !utf8.RuneStart(text[to]) {
		to--
	}
	return text[:to]
}

// ReadEnding reads the termination message of a VM's container: a record, also one whose end was cut off, or the
// sentence of an older shim. Anything else, such as the end of the container's log, is the Message alone.
func ReadEnding(message string) Ending {
	text := strings.TrimSpace(message)
	if !strings.HasPrefix(text, "{") {
		return ReadSentence(text)
	}
	if e, is := readRecord(text); is {
		return e
	}
	return Ending{Message: text}
}

// readRecord reads the members of a record one after the other, up to where it was cut off.
func readRecord(text string) (e Ending, is bool) {
	d := json.NewDecoder(strings.NewReader(text))
	_, _ = d.Token() // '{'
	for d.More() {
		key, err := d.Token()
		if err != nil {
			break
		}
		to := map[any]any{"reason": &e.Reason, "image": &e.Image, "directory": &e.Directory, "message": &e.Message, "faults": &e.Faults}[key]
		if to == nil {
			to = new(json.RawMessage)
		}
		rest := text[d.InputOffset():]
		if d.Decode(to) == nil {
			continue
		}
		switch key {
		case "message":
			e.Message = cutOff(rest)
		case "faults":
			e.Faults = nil
		}
		return e, e.Reason != "" || e.Message != ""
	}
	if _, err := d.Token(); err == nil && d.More() { // something follows: it is no record
		return Ending{}, false
	}
	return e, e.Reason != "" || e.Message != ""
}

// cutOff reads what there is of the last member's text: a ':' and half a string.
func cutOff(rest string) (text string) {
	half := strings.ToValidUTF8(strings.TrimPrefix(rest, ":"), "")
	const longestEscape = len(`\ud800\udc00`)
	for cut := 0; cut < longestEscape && cut <= len(half); cut++ {
		if json.Unmarshal([]byte(half[:len(half)-cut]+`"`), &text) == nil {
			return strings.TrimRight(text, "\ufffd") // half a pair of surrogates
		}
	}
	return ""
}

// ReadSentence reads what shims and agents from before there were records say of how a VM ended.
func ReadSentence(text string) Ending {
	reasons := map[string]string{
		"the guest suspended itself to disk": GuestSuspended, "the guest shut down": GuestShutdown,
		"the guest panicked": GuestPanicked, "ended before the guest ran": GuestUnstarted,
	}
	if reason, is := reasons[text]; is {
		return Ending{Reason: reason, Message: text}
	}
	if rest, is := strings.CutPrefix(text, "saved image "); is {
		image, directory, _ := strings.Cut(rest, " ")
		return Ending{Reason: GuestSaved, Image: image, Directory: directory, Message: text}
	}
	for _, reason := range restoreReasons() {
		if rest, is := strings.CutPrefix(text, reason+": "); is {
			return Ending{Reason: reason, Message: rest}
		}
	}
	return Ending{Message: text}
}
