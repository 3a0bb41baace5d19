package driver

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/plan"
)

// entry is a file in an archive.
type entry struct {
	header  tar.Header
	content string
}

func text(name, content string) entry {
	return entry{tar.Header{Name: name, Size: int64(len(content)), Typeflag: tar.TypeReg}, content}
}

func archive(tb testing.TB, entries ...entry) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if err := w.WriteHeader(&e.header); err != nil {
			tb.Fatal(err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			tb.Fatal(err)
		}
	}
	w.Flush() // what is missing is meant to be
	b.Write(make([]byte, 1024))
	return b.Bytes()
}

// holes says of a file that it is mostly holes, as GNU tar writes it (its manual's
// "Storing Sparse Files", version 0.1).
func holes(name, size string) entry {
	e := text(name, "")
	e.header.PAXRecords = map[string]string{
		"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.size": size,
		"GNU.sparse.numblocks": "1", "GNU.sparse.map": size + ",0",
	}
	e.header.Format = tar.FormatPAX
	return e
}

// sparse is an archive with such a file: Go's writer doesn't write them.
func sparse(tb testing.TB, name, size string) []byte {
	tb.Helper()
	e := holes(name, size)
	records := e.header.PAXRecords
	e.header.PAXRecords = map[string]string{}
	var extended strings.Builder
	for k, v := range records {
		line := " " + k + "=" + v + "\n"
		n := len(line) + 2 // the length counts itself
		extended.WriteString(string(rune('0'+n/10)) + string(rune('0'+n%10)) + line)
	}
	body := extended.String()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	h := tar.Header{Name: "x", Size: int64(len(body)), Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
	if err := w.WriteHeader(&h); err != nil {
		tb.Fatal(err)
	}
	io.WriteString(w, body)
	w.Flush()
	head := b.Bytes()
	retype(head, tar.TypeXHeader)
	return append(head, archive(tb, text(name, ""))...)
}

// retype makes the first header one of another type, with its checksum.
func retype(block []byte, kind byte) {
	block[156] = kind
	copy(block[148:156], "        ")
	sum := 0
	for _, c := range block[:512] {
		sum += int(c)
	}
	for i := 5; i >= 0; i-- {
		block[148+i] = byte('0' + sum&7)
		sum >>= 3
	}
	block[154], block[155] = 0, ' '
}

// own is a folder with all that a VMM's has.
func own(tb testing.TB, user *plan.User) (folder, string) {
	tb.Helper()
	dir := tb.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { root.Close() })
	d := folder{root, "load", user}
	if err := d.make(); err != nil {
		tb.Fatal(err)
	}
	return d, filepath.Join(dir, "load")
}

const ram = 3 << 10

func TestUnpack(t *testing.T) {
	state, config, memory := text(stateName, "{}"), text(configName, "{}"), text(memoryName, strings.Repeat("x", ram))
	link := entry{tar.Header{Name: stateName, Linkname: "/etc/passwd", Typeflag: tar.TypeSymlink}, ""}
	fifo := entry{tar.Header{Name: stateName, Typeflag: tar.TypeFifo}, ""}
	big := entry{tar.Header{Name: stateName, Size: maxJSON + 1, Typeflag: tar.TypeReg}, ""}
	for name, c := range map[string]struct {
		archive []byte
		ram     uint64
		want    string // of the error; "": none
	}{
		"shared":             {archive(t, config, state), 0, ""},
		"other order":        {archive(t, state, config), 0, ""},
		"no configuration":   {archive(t, state), 0, ""},
		"private":            {archive(t, config, state, memory), ram, ""},
		"holes, right size":  {append(archive(t, state)[:1024], sparse(t, memoryName, "3072")...), ram, ""},
		"nothing":            {nil, 0, "no " + stateName},
		"no state":           {archive(t, config), 0, "no " + stateName},
		"no memory":          {archive(t, config, state), ram, "no " + memoryName},
		"memory not wanted":  {archive(t, state, memory), 0, "doesn't belong"},
		"memory too short":   {archive(t, state, memory), ram + 1, "doesn't belong"},
		"memory too long":    {archive(t, state, memory), ram - 1, "doesn't belong"},
		"holes for ever":     {sparse(t, memoryName, "4611686018427387904"), ram, "doesn't belong"},
		"holes in the state": {sparse(t, stateName, "4611686018427387904"), 0, "doesn't belong"},
		"state twice":        {archive(t, state, state), 0, "belongs there once"},
		"config twice":       {archive(t, config, config, state), 0, "belongs there once"},
		"memory twice":       {archive(t, state, memory, memory), ram, "belongs there once"},
		"stranger":           {archive(t, state, text("passwd", "")), 0, `"passwd"`},
		"path":               {archive(t, text("../"+stateName, "{}")), 0, "doesn't belong"},
		"absolute":           {archive(t, text("/"+stateName, "{}")), 0, "doesn't belong"},
		"dot":                {archive(t, text("./"+stateName, "{}")), 0, "doesn't belong"},
		"symbolic link":      {archive(t, link), 0, "doesn't belong"},
		"FIFO":               {archive(t, fifo), 0, "doesn't belong"},
		"directory":          {archive(t, entry{tar.Header{Name: stateName + "/", Typeflag: tar.TypeDir}, ""}), 0, "doesn't belong"},
		"too big":            {archive(t, big), 0, "doesn't belong"},
		"cut":                {archive(t, state, memory)[:1024+512+100], ram, "unexpected EOF"},
		"garbage":            {bytes.Repeat([]byte("x"), 2048), 0, "an archive of cloud-hypervisor's snapshot was expected"},
		"long name":          {archive(t, text(strings.Repeat("n", 200<<10), "")), 0, "doesn't belong"},
		"unfinished entry":   {archive(t, entry{tar.Header{Name: stateName, Size: 1 << 20, Typeflag: tar.TypeReg}, "{"}), 0, "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			d, dir := own(t, nil)
			err := d.unpack(t.Context(), bytes.NewReader(c.archive), c.ram)
			if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || len(err.Error()) > 500) {
				t.Fatalf("%v, want %q", err, c.want)
			}
			if err == nil {
				sizes(t, dir, c.ram)
			}
		})
	}
}

// sizes sees that there is what there ought to be.
func sizes(t *testing.T, dir string, ram uint64) {
	t.Helper()
	want := map[string]int64{stateName: 2}
	if ram > 0 {
		want[memoryName] = int64(ram)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != len(want) {
		t.Errorf("%v, %v", files, err)
	}
	for name, size := range want {
		if st, err := os.Lstat(filepath.Join(dir, name)); err != nil || st.Size() != size || st.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}
}

func TestUnpackEnds(t *testing.T) {
	d, _ := own(t, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("somebody has killed it")
	cancel(why)
	if err := d.unpack(ctx, bytes.NewReader(archive(t, text(stateName, "{}"))), 0); !errors.Is(err, why) {
		t.Error(err)
	}
}

// TestPackUnpack: what a snapshot is packed into is a snapshot again.
func TestPackUnpack(t *testing.T) {
	from, dir := own(t, nil)
	memory := strings.Repeat("m", ram)
	write(t, dir, configName, `{"a":[]}`)
	write(t, dir, stateName, `{}`)
	write(t, dir, memoryName, memory)
	var b bytes.Buffer
	if err := from.pack(t.Context(), &b, ram); err != nil {
		t.Fatal(err)
	}
	to, dir := own(t, nil)
	if err := to.unpack(t.Context(), bytes.NewReader(b.Bytes()), ram); err != nil {
		t.Fatal(err)
	}
	sizes(t, dir, ram)
	if got, err := os.ReadFile(filepath.Join(dir, memoryName)); string(got) != memory || err != nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func write(tb testing.TB, dir, name, content string) {
	tb.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		tb.Fatal(err)
	}
}

// TestPackRefuses has a VMM put other things where its snapshot should be.
func TestPackRefuses(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	write(t, filepath.Dir(secret), "secret", `{"secret":true}`)
	for name, c := range map[string]struct {
		put  func(path string) error
		want string
	}{
		"nothing":         {func(string) error { return nil }, "no such file"},
		"half":            {func(path string) error { return os.WriteFile(path, []byte(`{"a":{}`), 0o600) }, "not whole"},
		"empty":           {func(path string) error { return os.WriteFile(path, nil, 0o600) }, "not whole"},
		"two":             {func(path string) error { return os.WriteFile(path, []byte(`{}{}`), 0o600) }, "not whole"},
		"FIFO":            {func(path string) error { return unix.Mkfifo(path, 0o600) }, "no regular file"},
		"directory":       {func(path string) error { return os.Mkdir(path, 0o700) }, "no regular file"},
		"link to outside": {func(path string) error { return os.Symlink(secret, path) }, "escapes"},
		"link to itself":  {func(path string) error { return os.Symlink(stateName, path) }, "too many levels"},
		"huge": {func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40))
		}, "more than"},
		"device": {func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))) }, "no regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			d, dir := own(t, nil)
			write(t, dir, configName, "{}")
			if err := c.put(filepath.Join(dir, stateName)); errors.Is(err, unix.EPERM) {
				t.Skip(err)
			} else if err != nil {
				t.Fatal(err)
			}
			if err := d.pack(t.Context(), io.Discard, 0); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestFolderIsTheVMMs: files of others are neither read for a VMM nor given to it,
// whatever it links to them.
func TestFolderIsTheVMMs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("files are given away")
	}
	user := &plan.User{UID: 954321, GID: 954322}
	d, dir := own(t, user)
	owner := func(path string, want uint32) {
		t.Helper()
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil || st.Uid != want {
			t.Errorf("%s is user %d's, %v", path, st.Uid, err)
		}
	}
	owner(dir, user.UID)
	secret := filepath.Join(filepath.Dir(dir), "secret")
	write(t, filepath.Dir(dir), "secret", "{}")
	if err := os.Link(secret, filepath.Join(dir, configName)); err != nil {
		t.Fatal(err)
	}
	if err := d.pack(t.Context(), io.Discard, 0); err == nil || !strings.Contains(err.Error(), "it is user 0's") {
		t.Error(err)
	}
	if err := d.write(configName, strings.NewReader("mine")); !errors.Is(err, os.ErrExist) {
		t.Error(err)
	}
	// What is written is given away also if another has its name by then.
	swap := readerFunc(func([]byte) (int, error) {
		path := filepath.Join(dir, stateName)
		if err := errors.Join(os.Remove(path), os.Link(secret, path)); err != nil {
			t.Error(err)
		}
		return 0, io.EOF
	})
	if err := d.write(stateName, swap); err != nil {
		t.Error(err)
	}
	owner(secret, 0)
	if got, err := os.ReadFile(secret); string(got) != "{}" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestObject(t *testing.T) {
	for text, want := range map[string]bool{
		`{}`: true, " {\"a\": [1, {\"}\": \"\\\\\\\"\"}]}\n\t\r ": true,
		``: false, ` `: false, `[]`: false, `7`: false, `x{}`: false, `{}x`: false, `{}{}`: false, `{"a":{}`: false, `{"}`: false, `{"\"}`: false, `{[}`: false,
	} {
		if got := isObject([]byte(text)); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}

func isObject(text []byte) bool {
	var o object
	for i := range text { // in whatever parts it comes
		o.Write(text[i : i+1])
	}
	return o.whole()
}

// FuzzObject: each object is whole, and no beginning of one is.
func FuzzObject(f *testing.F) {
	for _, seed := range []string{`{}`, `{"a":"\\"}`, `{"a":"\"}{","b":[{},[]]}`, "{\n}\n", `{"\ud800":"é"}`} {
		f.Add([]byte(seed), 1)
	}
	f.Fuzz(func(t *testing.T, text []byte, cut int) {
		trimmed := bytes.TrimSpace(text)
		if !json.Valid(text) || trimmed[0] != '{' {
			return
		}
		if !isObject(text) {
			t.Fatalf("%q is whole", text)
		}
		if cut >= 0 && cut < len(trimmed) && isObject(trimmed[:cut]) {
			t.Fatalf("%q is not whole", trimmed[:cut])
		}
	})
}

// FuzzUnpack: nothing but a snapshot's files comes out of an archive, of their sizes.
func FuzzUnpack(f *testing.F) {
	state, config, memory := text(stateName, "{}"), text(configName, "{}"), text(memoryName, strings.Repeat("x", ram))
	f.Add(archive(f, config, state), false)
	f.Add(archive(f, config, state, memory), true)
	f.Add(sparse(f, memoryName, "3072"), true)
	f.Add(archive(f, entry{tar.Header{Name: stateName, Linkname: "x", Typeflag: tar.TypeSymlink}, ""}), false)
	f.Fuzz(func(t *testing.T, text []byte, private bool) {
		if len(text) > 64<<10 {
			return
		}
		d, dir := own(t, nil)
		size := uint64(0)
		if private {
			size = ram
		}
		err := d.unpack(t.Context(), bytes.NewReader(text), size)
		files, listErr := os.ReadDir(dir)
		if listErr != nil {
			t.Fatal(listErr)
		}
		for _, file := range files {
			st, statErr := file.Info()
			switch {
			case statErr != nil, !st.Mode().IsRegular(), file.Name() != stateName && file.Name() != memoryName,
				st.Size() > maxJSON, err == nil && file.Name() == memoryName && uint64(st.Size()) != size:
				t.Errorf("%v, %v", st, statErr)
			}
		}
	})
}
