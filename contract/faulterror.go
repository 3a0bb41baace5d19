package contract

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// Arguments of Errorf that are parts of the fault, and of the sentence.
type (
	// FieldName is a field of the specification that the text names (Fault.Fields).
	FieldName string
	// ObjectName is Fault.Object.
	ObjectName string
	// ThisVM is the name of the VM that the fault is about. The sentence says "vm NAME". The fault's text says "the
	// VM", and nothing where the sentence begins with "vm NAME: ".
	ThisVM string
	// OtherVM is Fault.OtherVM; sentence and text say "vm NAME".
	OtherVM string
	// Advice is Fault.Advice; the sentence has it in parentheses, with a space in front.
	Advice string
	// Reason is Fault.Reason; neither sentence nor text has it.
	Reason string
)

func (vm ThisVM) String() string  { return "vm " + string(vm) }
func (vm OtherVM) String() string { return "vm " + string(vm) }
func (Reason) String() string     { return "" }

// String is the advice as a sentence goes on with it, empty without one.
func (a Advice) String() string {
	if a == "" {
		return ""
	}
	return " (" + string(a) + ")"
}

// faultError is an error that is known in parts.
type faultError struct {
	sentence error
	faults   []Fault
}

func (e *faultError) Error() string { return e.sentence.Error() }

// Unwrap returns the sentence, which wraps what it quotes.
func (e *faultError) Unwrap() error { return e.sentence }

// Faults returns the parts.
func (e *faultError) Faults() []Fault { return e.faults }

// Errorf is fmt.Errorf of a sentence for who works on the node. Arguments of the types above become parts of the
// fault, as do those of an error that it quotes (FaultsOf).
func Errorf(format string, args ...any) error {
	return &faultError{fmt.Errorf(format, args...), compose(format, args)}
}

// InField is an error about a field of the specification; empty: about none. An error that has a field keeps it.
func InField(field string, err error) error {
	if field == "" {
		return err
	}
	faults := FaultsOf(err)
	for i := range faults {
		faults[i].Field = cmp.Or(faults[i].Field, field)
	}
	return &faultError{fmt.Errorf("%s: %w", field, err), faults}
}

// Quoted is an error of which another program has said the sentence, and the parts where it knows them.
type Quoted struct {
	Sentence string
	Parts    []Fault
}

func (q *Quoted) Error() string { return q.Sentence }

// Faults are the parts (FaultsOf).
func (q *Quoted) Faults() []Fault { return q.Parts }

// quoted stands for an error in a text that is not put together yet.
const quoted = "\x00"

// compose returns the faults of a sentence: one with its text, or those of the error that it quotes.
func compose(format string, args []any) []Fault {
	if len(args) > 0 {
		_, is := args[0].(ThisVM)
		if rest, begins := strings.CutPrefix(format, "%s: "); is && begins {
			format, args = rest, args[1:]
		}
	}
	var own Fault
	inner := []Fault{{}}
	quotes := false
	texts := make([]any, len(args))
	for i, arg := range args {
		texts[i] = arg
		switch a := arg.(type) {
		case FieldName:
			own.Fields = append(own.Fields, string(a))
		case ObjectName:
			own.Object = string(a)
		case ThisVM:
			texts[i] = "the VM"
		case OtherVM:
			own.OtherVM = string(a)
		case Advice:
			own.Advice, texts[i] = joined(own.Advice, string(a)), ""
		case Reason:
			own.Reason = string(a)
		case error:
			if !quotes {
				inner, quotes, texts[i] = FaultsOf(a), true, errors.New(quoted)
			}
		}
	}
	text := fmt.Errorf(format, texts...).Error()
	before, after := text, ""
	if quotes {
		before, after, _ = strings.Cut(text, quoted)
	}
	out := around(inner, before, after)
	if len(out) == 1 {
		out[0] = merged(own, out[0])
	}
	return out
}

// merged adds to what is known of a fault what the error around it knows. What is inside is closer to the fault.
func merged(around, inside Fault) Fault {
	inside.Reason = cmp.Or(inside.Reason, around.Reason)
	inside.Object = cmp.Or(inside.Object, around.Object)
	inside.OtherVM = cmp.Or(inside.OtherVM, around.OtherVM)
	inside.Advice = joined(inside.Advice, around.Advice)
	inside.Fields = append(around.Fields, inside.Fields...)
	return inside
}

func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// around adds to faults what an error says around them. In front of a field, or of several faults, it is left out:
// each of them stands for itself.
func around(inner []Fault, before, after string) []Fault {
	out := slices.Clone(inner)
	if len(out) == 0 {
		return []Fault{{Text: before + after}}
	}
	if len(out) == 1 && out[0].Field == "" {
		out[0].Text = before + out[0].Text
	}
	out[len(out)-1].Text += after
	return out
}

// FaultsOf returns what an error says in parts: each fault of an error that has a method Faults, the file of one that
// package os made, with what other errors say around them. Of an error that has no such part it is one fault with
// the text; of nil there is none.
func FaultsOf(err error) []Fault {
	if err == nil {
		return nil
	}
	switch e := err.(type) {
	case interface{ Faults() []Fault }:
		if faults := e.Faults(); len(faults) > 0 {
			return slices.Clone(faults)
		}
	case *fs.PathError:
		return []Fault{ofFile(e.Path, err)}
	case *os.LinkError:
		return []Fault{ofFile(e.Old, err)}
	case interface{ Unwrap() error }:
		return within(err, e.Unwrap())
	case interface{ Unwrap() []error }:
		return ofSeveral(err, e.Unwrap())
	}
	return []Fault{{Text: err.Error()}}
}

func ofFile(name string, err error) Fault {
	if !path.IsAbs(name) {
		name = ""
	}
	return Fault{Object: name, Text: err.Error()}
}

// within returns the faults of an error that another wraps.
func within(err, inner error) []Fault {
	if inner != nil && inner.Error() != "" {
		if before, after, found := strings.Cut(err.Error(), inner.Error()); found {
			return around(FaultsOf(inner), before, after)
		}
	}
	return []Fault{{Text: err.Error()}}
}

// ofSeveral returns the faults of each of the errors that were joined. Of a sentence that quotes several it is
// those of the last that has more parts than its text.
func ofSeveral(err error, inner []error) (all []Fault) {
	var lines []string
	for _, e := range inner {
		all, lines = append(all, FaultsOf(e)...), append(lines, e.Error())
	}
	if strings.Join(lines, "\n") == err.Error() {
		return all
	}
	for _, e := range slices.Backward(inner) {
		if faults := FaultsOf(e); len(faults) != 1 || !faults[0].isText() {
			return within(err, e)
		}
	}
	return []Fault{{Text: err.Error()}}
}

func (f Fault) isText() bool {
	return f.Reason == "" && f.Field == "" && f.Object == "" && f.UseVMM == "" && f.Advice == "" && f.OtherVM == "" && len(f.Fields) == 0
}

const (
	// maxFaultText bounds each text of a fault, in bytes, and maxFaultFields its Fields.
	maxFaultText   = 1024
	maxFaultFields = 16
)

// BoundFaults returns the faults with bounds on their number and their texts, which are text: another program may
// say anything. The rest is not kept in memory.
func BoundFaults(all []Fault) []Fault {
	var out []Fault
	for _, f := range all[:min(len(all), maxFaults)] {
		for _, text := range []*string{&f.Reason, &f.Field, &f.Object, &f.Text, &f.UseVMM, &f.Advice, &f.OtherVM} {
			*text = bound(*text)
		}
		var fields []string
		for _, name := range f.Fields[:min(len(f.Fields), maxFaultFields)] {
			fields = append(fields, bound(name))
		}
		f.Fields = fields
		out = append(out, f)
	}
	return out
}

func bound(text string) string {
	if len(text) > maxFaultText {
		text = strings.Clone(text[:maxFaultText])
	}
	return strings.ToValidUTF8(text, "")
}
