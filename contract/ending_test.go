package contract

import (
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

const imageID = "0b7d0a4e-12b5-4a3e-8f6c-7d4b7d1c9a10"

// TestReadEnding: records are read as they were written, the sentences of older shims as what they say, and anything
// else is a message alone.
func TestReadEnding(t *testing.T) {
	saved := Ending{Reason: GuestSaved, Image: imageID, Directory: "restore-web", Message: "the guest was saved"}
	faults := Ending{Reason: RestoreImageUnfit, Message: "no <avx512> & more", Faults: []Fault{{Field: "cpu.model", Text: "no avx512"}, {Text: "no more"}}}
	for message, want := range map[string]Ending{
		string(saved.Encode()) + "\n": saved,
		string(faults.Encode()):       faults,
		`{"message":"later","reason":"ImageUsed","of":{"a later":["shim"]}}`: {Reason: RestoreImageUsed, Message: "later"},

		"saved image " + imageID + " restore-web\n":   {Reason: GuestSaved, Image: imageID, Directory: "restore-web", Message: "saved image " + imageID + " restore-web"},
		"the guest suspended itself to disk":          {Reason: GuestSuspended, Message: "the guest suspended itself to disk"},
		"the guest shut down\n":                       {Reason: GuestShutdown, Message: "the guest shut down"},
		"the guest panicked":                          {Reason: GuestPanicked, Message: "the guest panicked"},
		"ended before the guest ran":                  {Reason: GuestUnstarted, Message: "ended before the guest ran"},
		"DiskChanged: disks[1].path: content differs": {Reason: RestoreDiskChanged, Message: "disks[1].path: content differs"},
		"ImageLost: of no shim's":                     {Message: "ImageLost: of no shim's"},
		"no KVM: the guest shut down":                 {Message: "no KVM: the guest shut down"},
		"":                                            {},

		`{"level":"info","of":"a log"}`:                   {Message: `{"level":"info","of":"a log"}`},
		`{"reason":"ImageUsed","message":"x"} and more`:   {Message: `{"reason":"ImageUsed","message":"x"} and more`},
		"{\"reason\":\"ImageUsed\"}\n{\"message\":\"x\"}": {Message: "{\"reason\":\"ImageUsed\"}\n{\"message\":\"x\"}"},
		"{ is no JSON": {Message: "{ is no JSON"},
		`{"reason":7}`: {Message: `{"reason":7}`},
	} {
		if got := ReadEnding(message); !reflect.DeepEqual(got, want) {
			t.Errorf("%q:\n got %+v\nwant %+v", message, got, want)
		}
	}
}

// TestEndingCutOff: the kubelet cuts off what does not fit in the status of a pod with many containers. Programs
// decide as before, and people read what there is.
func TestEndingCutOff(t *testing.T) {
	whole := Ending{
		Reason: GuestSaved, Image: imageID, Directory: "restore-web", Message: "a \"quoted\" message\nof ü two \u0001 lines",
		Faults: []Fault{{Text: "one"}, {Text: "two"}},
	}
	text := string(whole.Encode())
	decided := strings.Index(text, `"message":`) // the members before it are whole
	for to := decided; to < len(text); to++ {
		got := ReadEnding(text[:to])
		if got.Reason != whole.Reason || got.Image != whole.Image || got.Directory != whole.Directory {
			t.Fatalf("cut to %q: %+v", text[:to], got)
		}
		if !strings.HasPrefix(whole.Message, got.Message) {
			t.Errorf("cut to %q: message %q", text[:to], got.Message)
		}
	}
	if got := ReadEnding(text[:strings.Index(text, "lines")]); got.Message != "a \"quoted\" message\nof ü two \u0001" {
		t.Errorf("message %q", got.Message)
	}
}

// TestEndingFits: the record stays JSON, and keeps what programs decide by, however much there is to be said.
func TestEndingFits(t *testing.T) {
	for name, message := range map[string]string{
		"long": strings.Repeat("x", 3*MaxEnding), "escaped": strings.Repeat("\x00", MaxEnding),
		"wide": "x" + strings.Repeat("ü", MaxEnding), "no text": strings.Repeat("\xff", MaxEnding),
	} {
		var faults []Fault
		for range 100 {
			faults = append(faults, Fault{Field: "disks[1].path", Text: strings.Repeat("y", 200)})
		}
		e := Ending{Reason: RestoreImageDamaged, Image: imageID, Directory: "restore-web", Message: message, Faults: faults}
		text := string(e.Encode())
		if len(text) > MaxEnding {
			t.Errorf("%s: %d bytes", name, len(text))
		}
		got := ReadEnding(text)
		if got.Reason != e.Reason || got.Image != e.Image || got.Directory != e.Directory {
			t.Errorf("%s: %.200s", name, text)
		}
		if got.Message == "" || !strings.HasSuffix(text, "}") {
			t.Errorf("%s: %d bytes of the message, the end of the record is %q", name, len(got.Message), text[len(text)-10:])
		}
	}
}

// TestSentence: agents and shims from before there were records read it.
func TestSentence(t *testing.T) {
	for want, e := range map[string]Ending{
		"ImageUsed: by web":   {Reason: RestoreImageUsed, Message: "by web"},
		"the guest shut down": {Reason: GuestShutdown, Message: "the guest shut down"},
		"no KVM":              {Message: "no KVM"},
	} {
		if got := e.Sentence(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if got := ReadSentence(want); !reflect.DeepEqual(got, e) {
			t.Errorf("%q is read as %+v, want %+v", want, got, e)
		}
	}
}

// FuzzReadEnding: what a container writes, or the kubelet finds in its log, is read without a panic, as text, and what was
// read can be written and is read as the same.
func FuzzReadEnding(f *testing.F) {
	f.Add(`{"reason":"GuestSaved","image":"` + imageID + `","directory":"restore-web","message":"x"}`)
	f.Add(`{"message":"cut \u00`)
	f.Add(`{"reason":"ImageUsed","faults":[{"field":"cpu","text":"y"}`)
	f.Add("saved image x y")
	f.Add("ImageUsed: by web")
	f.Fuzz(func(t *testing.T, message string) {
		e := ReadEnding(message)
		if strings.HasPrefix(e.Message, "{") || !utf8.ValidString(message) {
			return // no record, or not what was in it
		}
		text := e.Encode()
		if len(text) > MaxEnding {
			t.Fatalf("%d bytes", len(text))
		}
		again := ReadEnding(string(text))
		if e.Reason == "" && e.Message == "" {
			return
		}
		if len(message) < MaxEnding/8 && !reflect.DeepEqual(again, e) {
			t.Errorf("%q is read as %+v, and that as %+v", message, e, again)
		}
	})
}

// TestClip: a text that just fits stays whole, and none ends within a character.
func TestClip(t *testing.T) {
	for text, want := range map[string]string{"": "", "abc": "abc", "abcd": "abcd", "abcde": "abcd", "abcü": "abc", "üü": "üü", "aüü": "aü"} {
		if got := clip(text, 4); got != want {
			t.Errorf("%q clipped to 4 bytes is %q, want %q", text, got, want)
		}
	}
}
