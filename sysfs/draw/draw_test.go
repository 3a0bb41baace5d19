package draw

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/vmlet/vmlet/sysfs"
	"github.com/vmlet/vmlet/sysfs/notation"
)

var update = flag.Bool("update", false, "write golden files")

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (run with -update, look at the difference); got\n%.3000s", path, got)
	}
}

func drawn(t *testing.T, draw func(io.Writer, *sysfs.Host) error, h *sysfs.Host) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := draw(&b, h); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestTree(t *testing.T) {
	for name, h := range hosts() {
		t.Run(name, func(t *testing.T) {
			text := drawn(t, Tree, h)
			golden(t, filepath.Join("testdata", name+".txt"), text)
			checkTree(t, text)
		})
	}
}

// TestManyNotes: a person reads some, and is told that there are more.
func TestManyNotes(t *testing.T) {
	for _, n := range []int{maxNotes, maxNotes + 7} {
		h := &sysfs.Host{Notes: make([]sysfs.Note, n)}
		for i := range h.Notes {
			h.Notes[i] = sysfs.Note{Path: "/sys/x", Message: "permission denied"}
		}
		text := string(drawn(t, Tree, h))
		if got := strings.Count(text, "/sys/x"); got != maxNotes || strings.Contains(text, "and 7 more: see -o json") != (n > maxNotes) {
			t.Errorf("of %d notes %d are printed:\n%s", n, got, text)
		}
	}
}

// What is drawn for the manual is drawn here, so that it stays true.
func TestSVG(t *testing.T) {
	all := hosts()
	// Of a small virtual machine, with round figures for its memory.
	all["this-kind"] = read(t, filepath.Join("testdata", "this-kind-of-machine.json"))
	images := filepath.Join("..", "..", "docs", "images")
	for name, h := range all {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("testdata", name+".svg")
			switch name {
			case "server":
				path = filepath.Join(images, "topology-large.svg")
			case "this-kind":
				path = filepath.Join(images, "topology-this-kind-of-machine.svg")
			}
			picture := drawn(t, SVG, h)
			golden(t, path, picture)
			checkSVG(t, h, picture)
		})
	}
}

// read reads a Host that `vmlet topology -o json` wrote.
func read(t *testing.T, path string) *sysfs.Host {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	h := new(sysfs.Host)
	if err := json.Unmarshal(raw, h); err != nil {
		t.Fatal(err)
	}
	return h
}

func checkTree(t *testing.T, text []byte) {
	t.Helper()
	for _, r := range string(text) {
		if r != '\n' && !unicode.IsPrint(r) {
			t.Fatalf("%q reaches the terminal", r)
		}
	}
}

// checkSVG: it is one element of valid XML that refers to nothing outside, and
// has each CPU once, in the colour of its state.
func checkSVG(t *testing.T, h *sysfs.Host, picture []byte) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(picture))
	elements := map[string]bool{}
	classes := map[string]int{}
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if start, ok := token.(xml.StartElement); ok {
			elements[start.Name.Local] = true
			for _, a := range start.Attr {
				if a.Name.Local == "class" {
					classes[a.Value]++
				}
			}
		}
	}
	for name := range elements {
		if !strings.Contains(" svg title style rect text path g ", " "+name+" ") {
			t.Errorf("element <%s>", name)
		}
	}
	if bytes.Contains(picture, []byte("href")) || bytes.Contains(picture, []byte("url(")) || bytes.Contains(picture, []byte("NaN")) || bytes.Contains(picture, []byte(`="-`)) {
		t.Error("refers to something, or has a length that is none")
	}
	ids := map[int]string{}
	for i := range h.CPUs {
		ids[h.CPUs[i].ID], _ = cpuClass(&h.CPUs[i])
	}
	want := map[string]int{}
	for _, class := range ids {
		want[class]++
	}
	for class, n := range want {
		if classes[class] != n+1 { // and once in the legend
			t.Errorf("%d of class %s, want %d and the legend's", classes[class], class, n)
		}
	}
}

func TestSameHostSameBytes(t *testing.T) {
	for name := range hosts() {
		a, b := hosts()[name], hosts()[name]
		if !bytes.Equal(drawn(t, SVG, a), drawn(t, SVG, b)) || !bytes.Equal(drawn(t, Tree, a), drawn(t, Tree, b)) {
			t.Errorf("%s differs from itself", name)
		}
	}
}

// A screen has some sixty lines; no line says what another one says too.
func TestLargeMachineIsReadable(t *testing.T) {
	text := string(drawn(t, Tree, server()))
	if n := strings.Count(text, "\n"); n > 60 {
		t.Errorf("%d lines", n)
	}
	// Every CPU is in the list of exactly one cache.
	var listed int
	for _, m := range regexp.MustCompile(`L3 .*: CPUs (.*)\n`).FindAllStringSubmatch(text, -1) {
		for list := range strings.SplitSeq(m[1], " | ") {
			ids, err := notation.ParseIDList(list)
			if err != nil {
				t.Fatal(err)
			}
			listed += len(ids)
		}
	}
	if listed != 256 {
		t.Errorf("%d CPUs listed", listed)
	}
}

func TestClassesHaveColours(t *testing.T) {
	known := map[string]bool{}
	for _, p := range palette() {
		known[p.class] = true
	}
	size := regexp.MustCompile(`^(s[0-9]+|b|m|e)$`)
	for name, h := range hosts() {
		for _, m := range regexp.MustCompile(`class="([^"]*)"`).FindAllStringSubmatch(string(drawn(t, SVG, h)), -1) {
			for class := range strings.FieldsSeq(m[1]) {
				if !known[class] && !size.MatchString(class) {
					t.Errorf("%s: class %s has no colour", name, class)
				}
			}
		}
	}
}

func TestWriterFails(t *testing.T) {
	for _, draw := range []func(io.Writer, *sysfs.Host) error{Tree, SVG} {
		if err := draw(broken{}, vm()); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%v", err)
		}
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestNodesWithLessMemoryThanTheMachine(t *testing.T) {
	h := &sysfs.Host{CPUs: []sysfs.CPU{{}}, Memory: sysfs.Memory{Total: 24 << 30}, Nodes: []sysfs.Node{{Memory: 10 << 30}, {ID: 1, Memory: 2 << 30}}}
	for memory, want := range map[uint64]string{
		24 << 30: "24 GiB (its NUMA nodes together 12 GiB: the kernel says both)",
		13 << 30: "13 GiB", // close enough
		0:        "12 GiB", // not told
	} {
		h.Memory.Total = memory
		if got := newModel(h).machineLine(); !strings.HasSuffix(got, ", "+want) {
			t.Errorf("a machine of %d bytes is %q, want it to end in %q", memory, got, want)
		}
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0 B", 1023: "1023 B", 48 * kib: "48 KiB", 1280 * kib: "1.25 MiB", 2 * mib: "2 MiB",
		515584 * mib: "503.5 GiB", 1<<64 - 1: "16 EiB", 100 * gib: "100 GiB",
	} {
		if got := size(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

func TestCount(t *testing.T) {
	for want, got := range map[string]string{
		"1 core": count(1, "core"), "0 CPUs": count(0, "CPU"), "2 entries": count(2, "entry"),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// FuzzDraw draws any Host that JSON can hold: neither drawing may fail, and what
// comes out is fit for a terminal and an XML parser.
func FuzzDraw(f *testing.F) {
	for name, h := range hosts() {
		if name == "thousands" || name == "server" {
			continue // slow, and no odder than the others
		}
		raw, err := json.Marshal(h)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		h := new(sysfs.Host)
		if json.Unmarshal(raw, h) != nil {
			return
		}
		checkTree(t, drawn(t, Tree, h))
		checkSVG(t, h, drawn(t, SVG, h))
	})
}

// What Read makes of odd machines is drawn, too.
func TestReadMachines(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join("..", "testdata", "*.json"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no machines: %v", err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			h := read(t, path)
			checkTree(t, drawn(t, Tree, h))
			checkSVG(t, h, drawn(t, SVG, h))
		})
	}
}
