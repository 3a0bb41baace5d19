package importer

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/disk"
	"github.com/vmlet/vmlet/internal/atomicfile"
	"github.com/vmlet/vmlet/launch/location"
)

const (
	defaultStep = 64 << 20
	// downloadPart is a download's part of the progress where a conversion follows.
	downloadPart = 0.7
	// maxRestarts is how often a run begins again that can't go on.
	maxRestarts = 3
	// excess is how many bytes more than the claim's a compressed file may have.
	excess   = 16 << 20
	maxState = 16 << 10
)

// download fills the target with a server's file.
func (i *Importer) download(ctx context.Context, t *target) error {
	s, err := newServer(i.HTTP, i.Pace)
	if err != nil {
		return err
	}
	for begun := 0; ; begun++ {
		err = i.attempt(ctx, t, s)
		if !errors.Is(err, errOther) || begun == maxRestarts {
			break
		}
		i.forget(t)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", location.Public(s.url), err)
	}
	return nil
}

// state is how far a download is whose bytes are kept as they come.
type state struct {
	// Source tells the file, by all that says which it is.
	Source    string `json:"source"`
	Validator string `json:"validator"`
	Total     int64  `json:"total"`
	Offset    int64  `json:"offset"`
}

// store is the file that is downloaded to: on the claim, or beside a device.
func (i *Importer) store(t *target) string {
	if t.device() {
		return filepath.Join(i.Scratch, scratch)
	}
	return t.path(madeName)
}

func (i *Importer) statePath(t *target) string {
	return filepath.Join(filepath.Dir(i.store(t)), stateName)
}

// source is one string of all that says which file is meant.
func (i *Importer) source() string {
	sum := sha256.Sum256([]byte(i.ID + "\n" + i.HTTP.URL + "\n" + i.HTTP.Checksum))
	return hex.EncodeToString(sum[:])
}

// known reads how far an earlier run came; nothing: it begins.
func (i *Importer) known(t *target) (known state) {
	text, err := atomicfile.ReadOwn(i.statePath(t), maxState)
	if err != nil || json.Unmarshal(text, &known) != nil || known.Source != i.source() || known.Validator == "" || known.Offset <= 0 || known.Offset > t.room {
		return state{}
	}
	st, err := os.Lstat(i.store(t))
	if err != nil || !st.Mode().IsRegular() || st.Size() < known.Offset {
		return state{}
	}
	return known
}

// forget has the next attempt begin.
func (i *Importer) forget(t *target) {
	os.Remove(i.statePath(t))
	os.Remove(i.store(t))
	t.forget()
}

// attempt downloads the file, and makes the disk of it.
func (i *Importer) attempt(ctx context.Context, t *target, s *server) error {
	d := &download{Importer: i, target: t, state: i.known(t)}
	if i.HTTP.Checksum != "" {
		sum, err := location.ParseChecksum(i.HTTP.Checksum)
		if err != nil {
			return err
		}
		d.sum = &sum
	}
	d.stream = &stream{ctx: ctx, server: s, offset: d.state.Offset, answer: answer{validator: d.state.Validator, total: d.state.Total}}
	defer d.stream.hangUp()
	defer d.close()
	if err := d.receive(); err != nil {
		return err
	}
	if d.sum != nil && !bytes.Equal(d.sum.Hash.Sum(nil), d.sum.Want) {
		i.forget(t)
		return fmt.Errorf("the checksum of what was downloaded is %x, and was to be %x", d.sum.Hash.Sum(nil), d.sum.Want)
	}
	return d.finish(ctx)
}

// finish makes the disk of what was received.
func (d *download) finish(ctx context.Context) error {
	t := d.target
	if d.file == t.file { // a device, or it is the disk
		return nil
	}
	if t.device() || d.format != disk.Raw {
		err := d.take(ctx, t, d.file, downloadPart)
		if err == nil && t.device() {
			err = remove(d.Scratch, scratch, stateName) // on a claim they go when the disk has its name
		}
		return err
	}
	t.file, d.file = d.file, nil
	return nil
}

// download is one attempt to receive a file: a server's or, without a connection, an image's.
type download struct {
	*Importer
	*target
	state  state
	sum    *location.Checksum
	stream *stream
	// file is what is written to.
	file   *os.File
	format disk.Format
}

func (d *download) close() {
	if d.file != nil && d.file != d.target.file {
		d.file.Close()
	}
}

// receive writes all of the file, decompressed.
func (d *download) receive() error {
	if d.state.Offset > 0 {
		return d.goOn()
	}
	return d.unpack(d.stream)
}

// unpack writes a stream, what is compressed in it, or the one disk of an archive.
func (d *download) unpack(stream io.Reader) error {
	var from io.Reader = &bounds{from: stream, room: d.room + excess}
	if d.sum != nil {
		from = io.TeeReader(from, d.sum.Hash)
	}
	coming := bufio.NewReaderSize(from, 256<<10)
	plain, compressed, err := decompress(coming)
	if err != nil {
		return err
	}
	content := bufio.NewReaderSize(plain, 256<<10)
	head, err := content.Peek(disk.ForeignLength)
	if err != nil && !errors.Is(err, io.EOF) {
		return unreadable(err, compressed)
	}
	if foreign := disk.RecogniseForeign(head); foreign != nil && foreign.Tar && disk.Recognise(head) == disk.Raw {
		err = d.fromTar(content)
	} else if err = d.choose(head); err == nil {
		err = d.write(content, compressed, 0)
	}
	if err != nil {
		return unreadable(err, compressed)
	}
	_, err = io.Copy(io.Discard, coming) // the sum is of all
	return err
}

// unreadable says that a file can't be decompressed, where that is the fault.
func unreadable(err error, compressed bool) error {
	if !compressed || errors.Is(err, errOther) || errors.As(err, new(fatal)) || errors.Is(err, context.Canceled) || errors.As(err, new(*os.PathError)) || errors.As(err, new(tooLarge)) {
		return err
	}
	return fmt.Errorf("the file can't be decompressed: %w", err)
}

// choose opens what the file is written to, by what it begins with.
func (d *download) choose(head []byte) error {
	err := d.recognise(head)
	switch {
	case err != nil:
		return err
	case d.device() && d.format == disk.Raw:
		d.file = d.target.file
		return nil
	}
	d.file, err = openMade(d.store(d.target), unix.O_TRUNC)
	return err
}

// recognise tells the format of a file, and refuses what is no disk.
func (d *download) recognise(head []byte) error {
	switch d.format = disk.Recognise(head); {
	case len(head) == 0:
		return fatal{errors.New("the file is empty")}
	case d.format == disk.LUKS:
		d.format = disk.Raw
	case d.format == disk.Raw:
		if foreign := disk.RecogniseForeign(head); foreign != nil {
			return fatal{foreign}
		}
	}
	return nil
}

// goOn goes on with what an earlier run has kept.
func (d *download) goOn() error {
	var err error
	if d.file, err = openMade(d.store(d.target), 0); err != nil {
		return err
	}
	if err := d.file.Truncate(d.state.Offset); err != nil {
		return err
	}
	if d.sum != nil {
		if _, err := io.Copy(d.sum.Hash, io.NewSectionReader(d.file, 0, d.state.Offset)); err != nil {
			return err
		}
	}
	head := make([]byte, disk.ForeignLength)
	n, err := d.file.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := d.recognise(head[:n]); err != nil {
		return err
	}
	var from io.Reader = &bounds{from: d.stream, room: d.room}
	if d.sum != nil {
		from = io.TeeReader(from, d.sum.Hash)
	}
	return d.write(from, false, d.state.Offset)
}

// write writes the content. What comes as it is kept is written down from time to time: a later run
// goes on there.
func (d *download) write(content io.Reader, compressed bool, at int64) error {
	w := &sparse{file: d.file, device: d.file == d.target.file, at: at, room: d.room}
	part := 1.0
	if d.format != disk.Raw {
		part = downloadPart
	}
	told := &counted{ctx: d.stream.ctx, from: content, told: func(int64) {
		if d.stream.total > 0 {
			d.Progress.set(part * float64(d.stream.offset) / float64(d.stream.total))
		}
	}}
	step := cmp.Or(d.Step, defaultStep)
	for {
		n, err := io.CopyN(w, told, step)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if err := w.flush(); err != nil {
			return err
		}
		if n < step {
			return nil
		}
		if !compressed && !w.device && d.stream.validator != "" {
			if err := d.note(w.at); err != nil {
				return err
			}
		}
	}
}

// note writes down how far the download is, once the file is on the disk.
func (d *download) note(offset int64) error {
	if err := d.file.Sync(); err != nil {
		return err
	}
	text, err := json.Marshal(state{Source: d.source(), Validator: d.stream.validator, Total: d.stream.total, Offset: offset})
	if err != nil {
		return err
	}
	return atomicfile.ReplaceDurably(d.statePath(d.target), text, 0o600)
}

// bounds ends a stream that has more than there is room for.
type bounds struct {
	from io.Reader
	// room is how many bytes may come, n how many have.
	room, n int64
}

// tooLarge is a file that the claim has no room for.
type tooLarge struct{ room int64 }

func (e tooLarge) Error() string {
	return fmt.Sprintf("the file has more than the %d bytes that the claim has room for: ask for a larger claim", e.room)
}

func (b *bounds) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	if b.n += int64(n); b.n > b.room {
		return 0, tooLarge{b.room}
	}
	return n, err
}
