package importer

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/md5"
	"crypto/sha512"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"github.com/vmlet/vmlet/launch"
)

// website has one file, and faults.
type website struct {
	content []byte
	// cuts is after how many bytes each connection is cut; further ones are not.
	cuts []int
	// noRanges: it always sends all; noTag: it says nothing that tells the file from another.
	noRanges, noTag bool
	// handle answers in place of all that.
	handle http.HandlerFunc

	mu     sync.Mutex
	tag    int
	ranges []string
}

func serve(t *testing.T, w *website) string {
	t.Helper()
	s := httptest.NewServer(w)
	t.Cleanup(s.Close)
	return s.URL + "/disk?token=secret"
}

func (w *website) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	n := len(w.ranges)
	w.ranges = append(w.ranges, r.Header.Get("Range"))
	content, tag := w.content, w.tag
	w.mu.Unlock()
	if w.handle != nil {
		w.handle(out, r)
		return
	}
	if !w.noTag {
		out.Header().Set("ETag", fmt.Sprintf(`"%d"`, tag))
	}
	if w.noRanges {
		r.Header.Del("Range")
	}
	if n < len(w.cuts) {
		out = &cutting{ResponseWriter: out, left: w.cuts[n]}
	}
	http.ServeContent(out, r, "", time.Time{}, bytes.NewReader(content))
}

// cutting cuts the connection after some bytes.
type cutting struct {
	http.ResponseWriter
	left int
}

func (c *cutting) Write(p []byte) (int, error) {
	if len(p) > c.left {
		_, _ = c.ResponseWriter.Write(p[:c.left])
		_ = http.NewResponseController(c.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	c.left -= len(p)
	return c.ResponseWriter.Write(p)
}

func fromSite(t *testing.T, w *website) *Importer {
	t.Helper()
	i := claim(t)
	i.HTTP = &launch.ImportHTTP{URL: serve(t, w)}
	return i
}

// TestFormats: what is offered, by its content and not by its name.
func TestFormats(t *testing.T) {
	content := someDisk()
	for _, format := range []string{"raw", "qcow2", "vmdk", "vdi", "vhdx", "vpc"} {
		plain := read(t, image(t, format, content))
		for name, compressed := range map[string]func(io.Writer) (io.WriteCloser, error){
			"plain": nil,
			"gz":    func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil },
			"xz":    func(w io.Writer) (io.WriteCloser, error) { return xz.NewWriter(w) },
			"zst":   func(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w) },
		} {
			if name != "plain" && format != "raw" && (format != "qcow2" || name == "xz") {
				continue // xz takes long to write
			}
			t.Run(format+"/"+name, func(t *testing.T) {
				i := fromSite(t, &website{content: pack(t, plain, compressed)})
				if err := i.Run(t.Context()); err != nil {
					t.Fatal(err)
				}
				wantDisk(t, i, content, whole)
				if got := allocated(t, i); got > 5*mi {
					t.Errorf("the disk takes %d bytes, of which 3 MiB have data", got)
				}
				answer := httptest.NewRecorder()
				if i.Progress.ServeHTTP(answer, nil); answer.Body.String() != "100.0\n" {
					t.Errorf("at its end the progress is %q", answer.Body)
				}
			})
		}
	}
}

func pack(t *testing.T, content []byte, compressed func(io.Writer) (io.WriteCloser, error)) []byte {
	t.Helper()
	if compressed == nil {
		return content
	}
	var packed bytes.Buffer
	w, err := compressed(&packed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

// TestCuts: a connection that is cut is followed by one for the rest, where the file can be told from
// another; else the download begins again.
func TestCuts(t *testing.T) {
	content := someDisk()
	for name, c := range map[string]struct {
		site   *website
		ranges []string
	}{
		"rest":      {&website{cuts: []int{mi, 2 * mi, 0}}, []string{"", "bytes=1048576-", "bytes=3145728-", "bytes=3145728-"}},
		"no tag":    {&website{cuts: []int{mi}, noTag: true}, []string{"", ""}},
		"no ranges": {&website{cuts: []int{mi}, noRanges: true}, []string{"", "bytes=1048576-", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			site := c.site
			site.content = content
			i := fromSite(t, site)
			i.HTTP.Checksum = fmt.Sprintf("sha512:%x", sha512.Sum512(content))
			if err := i.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantDisk(t, i, content, whole)
			if !slices.Equal(site.ranges, c.ranges) {
				t.Errorf("it was asked for %q, want %q", site.ranges, c.ranges)
			}
		})
	}
}

// TestChangedFile: parts of two files are never put together.
func TestChangedFile(t *testing.T) {
	first, second := someDisk(), bytes.ToUpper(someDisk())
	site := &website{content: first, cuts: []int{2 * mi}}
	i := fromSite(t, site)
	base := site.ServeHTTP
	changing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			site.mu.Lock()
			site.content, site.tag = second, 1
			site.mu.Unlock()
		}()
		base(w, r)
	}))
	t.Cleanup(changing.Close)
	i.HTTP.URL = changing.URL
	if err := i.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantDisk(t, i, second, whole)
}

// TestGoesOn: a run that was killed is followed by one that goes on, unless the source is another by
// then.
func TestGoesOn(t *testing.T) {
	content := someDisk()
	for name, c := range map[string]struct {
		change func(*Importer, *website)
		ranges []string
	}{
		"same":         {func(*Importer, *website) {}, []string{"", "bytes=4194304-"}},
		"changed":      {func(_ *Importer, w *website) { w.tag = 1 }, []string{"", "bytes=4194304-", ""}},
		"another URL":  {func(i *Importer, _ *website) { i.HTTP.URL += "&more" }, []string{"", ""}},
		"damaged note": {func(i *Importer, _ *website) { os.WriteFile(filepath.Join(i.Folder, stateName), []byte("{"), 0o600) }, []string{"", ""}},
		"cut file":     {func(i *Importer, _ *website) { os.Truncate(filepath.Join(i.Folder, madeName), 5) }, []string{"", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			site := &website{content: content}
			i := fromSite(t, site)
			i.Step = mi
			i.HTTP.Checksum = fmt.Sprintf("md5:%x", md5.Sum(content))
			killed, kill := context.WithCancel(t.Context())
			site.cuts = []int{4*mi + 5}
			site.mu.Lock()
			go func() {
				defer kill()
				for { // until it has written down how far it is
					text, _ := os.ReadFile(filepath.Join(i.Folder, stateName))
					if bytes.Contains(text, []byte(`"offset":4194304`)) || t.Context().Err() != nil {
						return
					}
					time.Sleep(time.Millisecond)
				}
			}()
			site.mu.Unlock()
			i.Pace = time.Hour // it waits after the cut
			wantFault(t, i, i.Run(killed), "context canceled")
			i.Pace = time.Millisecond
			c.change(i, site)
			if err := i.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantDisk(t, i, content, whole)
			if !slices.Equal(site.ranges, c.ranges) {
				t.Errorf("it was asked for %q, want %q", site.ranges, c.ranges)
			}
		})
	}
}

// TestHostileServer: what a server says is bounded by the claim, and told without the URL's secrets.
func TestHostileServer(t *testing.T) {
	endless := func(w http.ResponseWriter, _ *http.Request) {
		for piece := bytes.Repeat([]byte{1}, mi); ; {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	}
	says := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	bomb := pack(t, make([]byte, 36*mi), func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil })
	emptyMembers := func(w http.ResponseWriter, _ *http.Request) {
		member := pack(t, nil, func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil })
		for many := bytes.Repeat(member, 10000); ; {
			if _, err := w.Write(many); err != nil {
				return
			}
		}
	}
	for name, c := range map[string]struct {
		site *website
		sum  string
		want string
		asks int
	}{
		"endless":       {&website{handle: endless}, "", "has more than the 33554432 bytes", 1},
		"too large":     {&website{content: make([]byte, 33*mi)}, "", "has more than the 33554432 bytes", 1},
		"bomb":          {&website{content: bomb}, "", "has more than the 33554432 bytes", 1},
		"endless empty": {&website{handle: emptyMembers}, "", "has more than the 50331648 bytes", 1},
		"not there":     {&website{handle: says(404)}, "", "the server says 404 Not Found", 1},
		"not allowed":   {&website{handle: says(401)}, "", "401", 1},
		"broken":        {&website{handle: says(503)}, "", "asked 8 times in vain: the server says 503", 8},
		"empty":         {&website{content: []byte{}}, "", "the file is empty", 1},
		"web page":      {&website{content: []byte("\n<!DOCTYPE html><html>log in")}, "", "a web page", 1},
		"wrong sum":     {&website{content: someDisk()}, "sha256:" + strings.Repeat("0", 64), "the checksum", 1},
		"cut gz":        {&website{content: bomb[:len(bomb)/2]}, "", "can't be decompressed", 1},
		"loop":          {&website{handle: func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/again", http.StatusFound) }}, "", "more than 10 redirects", 8 * 10},
		"other scheme": {&website{handle: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		}}, "", "unsupported protocol scheme", 8},
		"large answer":   {&website{handle: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", mi)) }}, "", "in vain", 8},
		"always shorter": {&website{content: someDisk(), cuts: slices.Repeat([]int{0}, 100)}, "", "in vain", 8},
	} {
		t.Run(name, func(t *testing.T) {
			site := c.site
			i := fromSite(t, site)
			i.HTTP.Checksum = c.sum
			err := i.Run(t.Context())
			wantFault(t, i, err, c.want)
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error has the URL's secret: %v", err)
			}
			if len(site.ranges) != c.asks {
				t.Errorf("the server was asked %d times, want %d", len(site.ranges), c.asks)
			}
			if name == "wrong sum" {
				if left, _ := os.ReadDir(i.Folder); len(left) > 0 {
					t.Errorf("%v is left of a file whose checksum is wrong", left)
				}
			}
		})
	}
}

// TestLyingParts: a part of another place or file is not taken for the rest.
func TestLyingParts(t *testing.T) {
	content := someDisk()
	for name, says := range map[string]string{
		"another place":  fmt.Sprintf("bytes 0-%d/%d", len(content)-1, len(content)),
		"another length": fmt.Sprintf("bytes 1048576-%d/%d", len(content)-1, len(content)+1),
		"nonsense":       "bytes of another world",
	} {
		t.Run(name, func(t *testing.T) {
			site := &website{}
			site.handle = func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("ETag", `"a"`)
				if r.Header.Get("Range") != "" {
					w.Header().Set("Content-Range", says)
					w.WriteHeader(http.StatusPartialContent)
					_, _ = w.Write(content)
					return
				}
				w.Header().Set("Content-Length", fmt.Sprint(len(content)))
				_, _ = w.Write(content[:mi])
				panic(http.ErrAbortHandler)
			}
			i := fromSite(t, site)
			wantFault(t, i, i.Run(t.Context()), "has changed while it was downloaded")
		})
	}
}

// TestSecrets: credentials and headers go to the server that is named, and not to another.
func TestSecrets(t *testing.T) {
	content := someDisk()
	var there http.Header
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		there = r.Header.Clone()
		_, _ = w.Write(content)
	}))
	t.Cleanup(other.Close)
	var here http.Header
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		here = r.Header.Clone()
		http.Redirect(w, r, other.URL, http.StatusFound)
	}))
	t.Cleanup(first.Close)

	folder := t.TempDir()
	for name, text := range map[string]string{"login/accessKeyId": "ann", "login/secretKey": "hush", "headers/a": "X-Token: hush\n"} {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	i := claim(t)
	i.HTTP = &launch.ImportHTTP{
		URL: first.URL, Headers: []string{"X-Plain: yes"}, Credentials: filepath.Join(folder, "login"), HeaderFolders: []string{filepath.Join(folder, "headers")},
	}
	if err := i.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantDisk(t, i, content, whole)
	for name, want := range map[string]string{"Authorization": "Basic YW5uOmh1c2g=", "X-Token": "hush", "X-Plain": "yes"} {
		if got := here.Get(name); got != want {
			t.Errorf("the first server got %s %q, want %q", name, got, want)
		}
		if got := there.Get(name); got != "" {
			t.Errorf("the other server got %s %q", name, got)
		}
	}
	if err := os.Remove(filepath.Join(folder, "login/secretKey")); err != nil {
		t.Fatal(err)
	}
	poor := claim(t)
	poor.HTTP = i.HTTP
	wantFault(t, poor, poor.Run(t.Context()), "the Secret login has no accessKeyId and secretKey")
}

// TestAuthorities: a server's certificate is checked, by the authorities that are named.
func TestAuthorities(t *testing.T) {
	content := someDisk()
	s := httptest.NewTLSServer(&website{content: content})
	t.Cleanup(s.Close)
	i := claim(t)
	i.HTTP = &launch.ImportHTTP{URL: s.URL}
	wantFault(t, i, i.Run(t.Context()), "certificate")
	folder := filepath.Join(t.TempDir(), "authorities")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	i.HTTP.Certificates = folder
	wantFault(t, i, i.Run(t.Context()), "ConfigMap authorities does not exist or is empty")
	if err := os.WriteFile(filepath.Join(folder, "ca.pem"), pemOf(s.Certificate().Raw), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := i.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantDisk(t, i, content, whole)
}

// TestDowngrade: a redirect from https to http is not followed.
func TestDowngrade(t *testing.T) {
	plain := httptest.NewServer(&website{content: someDisk()})
	t.Cleanup(plain.Close)
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, plain.URL, http.StatusFound) }))
	t.Cleanup(secure.Close)
	u, err := url.Parse(secure.URL)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{url: u, pace: time.Millisecond, headers: http.Header{}}
	s.client = secure.Client()
	s.client.CheckRedirect = s.redirect
	if _, err := s.get(t.Context(), 0, answer{}); err == nil || !strings.Contains(err.Error(), "redirects from https to http") {
		t.Errorf("%v", err)
	}
}
