package run

import (
	"fmt"
	"testing"
)

func TestTail(t *testing.T) {
	tail := &Tail{Limit: 10}
	for _, part := range []string{"lost, kept", "\nagain\x1b"} {
		if n, err := tail.Write([]byte(part)); n != len(part) || err != nil {
			t.Error(n, err)
		}
	}
	if got := tail.Line(); got != "ept; again?" {
		t.Errorf("%q", got)
	}
	if got := tail.String(); got != "ept\nagain\x1b" {
		t.Errorf("%q", got)
	}
	fmt.Fprint(tail, "\xff23456789012")
	if got := tail.Line(); got != "3456789012" {
		t.Errorf("%q", got)
	}
}

func TestRefused(t *testing.T) {
	for words, want := range map[string]bool{
		"Could not access KVM kernel module: Permission denied": true,
		"2: No such file or directory (os error 2)":             true,
		"Cannot allocate memory":                                false,
		"":                                                      false,
	} {
		if Refused(words) != want {
			t.Errorf("%q: %v", words, !want)
		}
	}
}
