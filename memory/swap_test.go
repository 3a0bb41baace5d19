package memory

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"unicode"

	"github.com/vmlet/vmlet/test/faultfs"
)

// TestSwapped: a file of another image is found out, also one of the same guest, of
// the same sizes and with mostly the same content.
func TestSwapped(t *testing.T) {
	ram := someRAM(t)
	first, _ := save(t, ram, Options{})
	if _, err := ram.WriteAt([]byte{^content(t, ram)[0]}, 0); err != nil {
		t.Fatal(err)
	}
	second := filepath.Join(t.TempDir(), "image")
	w, err := Create(second, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	state, err := w.StateFile()
	if err != nil {
		t.Fatal(err)
	}
	_, err = state.WriteString("DEVICE STATE")
	if err == nil {
		_, err = w.CopyMemory(t.Context(), ram, fileSize(t, ram), nil)
	}
	if err == nil {
		err = w.Commit(t.Context(), manifestFor(fileSize(t, ram)))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{MemoryName, StateName, ManifestName} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "mixed")
			if err := os.CopyFS(dir, os.DirFS(first)); err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(filepath.Join(second, name))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name), b, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			img := open(t, dir)
			var damaged *DamagedError
			if err := img.Verify(t.Context(), nil); !errors.As(err, &damaged) {
				t.Errorf("verify: %v", err)
			}
			fill, state := img.Fill(t.Context(), newRAM(t, fileSize(t, ram)), 0, nil), img.VerifyState(t.Context())
			if (fill != nil) != (name != StateName) || (state != nil) != (name != MemoryName) {
				t.Errorf("fill: %v; state: %v", fill, state)
			}
		})
	}
}

// classes are the kinds of bytes that a manifest has.
func classes() map[string]func(byte) bool {
	return map[string]func(byte) bool{
		"digit":  func(b byte) bool { return b >= '0' && b <= '9' },
		"letter": func(b byte) bool { return unicode.IsLetter(rune(b)) },
		"space":  func(b byte) bool { return b == ' ' || b == '\n' },
		"other": func(b byte) bool {
			return !unicode.IsLetter(rune(b)) && !unicode.IsDigit(rune(b)) && b != ' ' && b != '\n'
		},
	}
}

// TestResealedManifests changes bytes of each kind at random and sums the manifest
// anew, as someone would who means harm: it is refused with what is wrong, or changes
// nothing of what guests get. (Without a new sum each flip is refused:
// TestManifestBitFlips.)
func TestResealedManifests(t *testing.T) {
	ram := someRAM(t)
	dir, _ := saveIn(t, filepath.Join(faultfs.MemoryDir(t), "image"), ram, Options{})
	path, want := filepath.Join(dir, ManifestName), content(t, ram)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	body := good[:len(good)-len(sumTrailer(0))]
	tries := 100
	if faultfs.Long() {
		tries = 20000
	}
	rnd := rand.New(rand.NewPCG(faultfs.Seed(t), 0))
	for name, class := range classes() {
		var at []int
		for i, b := range body {
			if class(b) {
				at = append(at, i)
			}
		}
		refused, damaged, harmless := 0, 0, 0
		for range tries {
			b := bytes.Clone(body)
			for range 1 + rnd.IntN(2) {
				i := at[rnd.IntN(len(at))]
				if b[i] ^= 1 << rnd.IntN(8); rnd.IntN(3) == 0 {
					b[i] = byte('0' + rnd.IntN(10)) // sizes that are sizes
				}
			}
			if err := os.WriteFile(path, append(b, sumTrailer(sumOf(b))...), 0o600); err != nil {
				t.Fatal(err)
			}
			switch err := tryImage(t, dir, want); {
			case err == nil:
				harmless++
			case errors.As(err, new(*FormatError)):
				refused++
			case errors.As(err, new(*DamagedError)), errors.Is(err, ErrStreamLayout):
				damaged++
			default:
				t.Errorf("%s: %v has no type:\n%s", name, err, b)
			}
		}
		t.Logf("%s: of %d manifests %d make no sense, %d don't fit their files, %d are harmless", name, tries, refused, damaged, harmless)
	}
}

// tryImage fills from an image and verifies it; an error too if the content is wrong.
func tryImage(t *testing.T, dir string, want []byte) error {
	img, err := Open(dir)
	if err != nil {
		return err
	}
	defer img.Close()
	m := img.Manifest()
	if len(m.Specification) > 0 && !json.Valid(m.Specification) {
		return errors.New("the specification is no JSON")
	}
	if m.MemorySize != uint64(len(want)) {
		// The shim sees that before it fills.
		return damagedFile(dir, "memory of %d bytes", m.MemorySize)
	}
	ram := newRAM(t, m.MemorySize)
	defer ram.Close()
	if err := errors.Join(img.VerifyState(t.Context()), img.Fill(t.Context(), ram, 0, nil), img.Verify(t.Context(), nil)); err != nil {
		return err
	}
	if !bytes.Equal(content(t, ram), want) {
		return fmt.Errorf("%s: accepted, and of another content", dir)
	}
	return nil
}
