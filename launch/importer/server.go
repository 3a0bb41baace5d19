package importer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vmlet/vmlet/launch"
	"github.com/vmlet/vmlet/launch/location"
)

const (
	connectPatience = 30 * time.Second
	// answerPatience is how long a server may take to answer, and stallPatience until more comes.
	answerPatience = time.Minute
	stallPatience  = time.Minute
	// maxTries is how often in a row a server is asked in vain.
	maxTries   = 8
	mostPause  = 30 * time.Second
	maxAnswer  = 64 << 10
	maxSecret  = 64 << 10
	maxEntries = 100
	redirects  = 10
)

// server is a web server, and what is sent with each request.
type server struct {
	client  *http.Client
	url     *url.URL
	headers http.Header
	pace    time.Duration
}

func newServer(h *launch.ImportHTTP, pace time.Duration) (*server, error) {
	u, err := location.URL(h.URL)
	if err != nil {
		return nil, err
	}
	roots, err := authorities(h.Certificates)
	if err != nil {
		return nil, err
	}
	s := &server{url: u, headers: make(http.Header), pace: max(pace, 0)}
	if s.pace == 0 {
		s.pace = time.Second
	}
	s.client = &http.Client{
		CheckRedirect: s.redirect,
		Transport: &http.Transport{
			DialContext:            (&net.Dialer{Timeout: connectPatience}).DialContext,
			TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:    connectPatience,
			ResponseHeaderTimeout:  answerPatience,
			MaxResponseHeaderBytes: maxAnswer,
			DisableCompression:     true, // lengths and sums are of the file as it is
			DisableKeepAlives:      true,
		},
	}
	return s, s.authorize(h)
}

// authorize reads what the requests have beside the URL.
func (s *server) authorize(h *launch.ImportHTTP) error {
	lines := slices.Clone(h.Headers)
	for _, folder := range h.HeaderFolders {
		files, err := readFolder(folder, "Secret")
		if err != nil {
			return err
		}
		for _, content := range files {
			lines = append(lines, string(content))
		}
	}
	for _, line := range lines {
		name, value, err := location.Header(line)
		if err != nil {
			return err
		}
		s.headers.Add(name, value)
	}
	if h.Credentials == "" {
		return nil
	}
	files, err := readFolder(h.Credentials, "Secret")
	if err != nil {
		return err
	}
	user, password := files["accessKeyId"], files["secretKey"]
	if user == nil || password == nil {
		return fmt.Errorf("the Secret %s has no accessKeyId and secretKey, for user and password: add them", filepath.Base(h.Credentials))
	}
	r := http.Request{Header: s.headers}
	r.SetBasicAuth(string(user), string(password))
	return nil
}

// authorities are the system's, and those of a ConfigMap.
func authorities(folder string) (*x509.CertPool, error) {
	if folder == "" {
		return nil, nil // the system's
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	files, err := readFolder(folder, "ConfigMap")
	if err != nil {
		return nil, err
	}
	found := false
	for _, content := range files {
		found = roots.AppendCertsFromPEM(content) || found
	}
	if !found {
		return nil, fmt.Errorf("ConfigMap %s has no certificate in PEM", filepath.Base(folder))
	}
	return roots, nil
}

// readFolder reads the keys of a Secret or ConfigMap, whose name is the folder's.
func readFolder(folder, kind string) (map[string][]byte, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	files := make(map[string][]byte)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") { // the kubelet's own
			continue
		}
		f, err := os.Open(filepath.Join(folder, e.Name()))
		if err != nil {
			return nil, err
		}
		content, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
		f.Close()
		if err == nil && (len(content) > maxSecret || len(files) == maxEntries) {
			err = fmt.Errorf("%s %s has too much in it: at most %d keys of %d bytes", kind, filepath.Base(folder), maxEntries, maxSecret)
		}
		if err != nil {
			return nil, err
		}
		files[e.Name()] = content
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s %s does not exist or is empty: make it", kind, filepath.Base(folder))
	}
	return files, nil
}

// redirect follows to other hosts without what is meant for the first alone.
func (s *server) redirect(r *http.Request, via []*http.Request) error {
	first := via[0].URL
	switch {
	case len(via) >= redirects:
		return fmt.Errorf("more than %d redirects", redirects)
	case via[len(via)-1].URL.Scheme == "https" && r.URL.Scheme != "https":
		return errors.New("it redirects from https to http: name the URL that is meant")
	}
	r.Header.Del("Referer")
	if r.URL.Host != first.Host || r.URL.Scheme != first.Scheme {
		for name := range s.headers {
			r.Header.Del(name)
		}
	}
	return nil
}

// answer is a part of the file: from an offset to its end.
type answer struct {
	body io.ReadCloser
	// validator tells the file from what it may become; empty: nothing does.
	validator string
	// total is the file's length; -1: it is not said.
	total int64
}

// fatal is what another try does not mend.
type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

// errOther: the server has another file than before, or does not send parts.
var errOther = errors.New("the file has changed while it was downloaded, or the server does not send parts of it")

// get asks for the file from an offset, where that is not 0 on condition that it is the same as before.
func (s *server) get(ctx context.Context, offset int64, was answer) (answer, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url.String(), nil)
	if err != nil {
		return answer{}, fatal{err}
	}
	r.Header = s.headers.Clone()
	r.Header.Set("Accept-Encoding", "identity")
	if offset > 0 {
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
		r.Header.Set("If-Range", was.validator)
	}
	response, err := s.client.Do(r)
	if err != nil {
		var of *url.Error
		if errors.As(err, &of) {
			err = of.Err // without the URL, which may have a password
		}
		return answer{}, err
	}
	a := answer{body: response.Body, validator: validator(response.Header), total: response.ContentLength}
	switch {
	case response.StatusCode == http.StatusOK && offset == 0:
		return a, nil
	case response.StatusCode == http.StatusPartialContent && offset > 0:
		var from int64
		if from, a.total = contentRange(response.Header.Get("Content-Range")); from == offset && a.total == was.total && a.validator == was.validator {
			return a, nil
		}
		err = errOther
	case offset > 0 && (response.StatusCode == http.StatusOK || response.StatusCode == http.StatusRequestedRangeNotSatisfiable):
		err = errOther
	default:
		err = fmt.Errorf("the server says %d %s", response.StatusCode, http.StatusText(response.StatusCode))
		switch response.StatusCode {
		case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		default:
			if response.StatusCode < 500 {
				err = fatal{err}
			}
		}
	}
	response.Body.Close()
	return answer{}, err
}

// validator is what If-Range can have: a strong entity tag, or a date.
func validator(h http.Header) string {
	if tag := h.Get("ETag"); strings.HasPrefix(tag, `"`) {
		return tag
	}
	return h.Get("Last-Modified")
}

// contentRange reads "bytes FROM-TO/TOTAL"; -1: it does not say.
func contentRange(text string) (from, total int64) {
	span, all, found := strings.Cut(strings.TrimPrefix(text, "bytes "), "/")
	first, _, dash := strings.Cut(span, "-")
	from, errFrom := strconv.ParseInt(first, 10, 64)
	total, errTotal := strconv.ParseInt(all, 10, 64)
	if !found || !dash || errFrom != nil || from < 0 {
		return -1, -1
	}
	if errTotal != nil || total < 0 {
		total = -1
	}
	return from, total
}

// stream is a file of a server. Where a connection is cut it goes on with another.
type stream struct {
	ctx    context.Context
	server *server
	answer
	offset int64
	// end ends the connection; tries are those in a row that gave nothing.
	end   context.CancelFunc
	tries int
}

func (s *stream) Read(p []byte) (int, error) {
	for {
		if s.body == nil {
			if s.offset > 0 && s.offset == s.total {
				return 0, io.EOF // all of it is kept
			}
			if err := s.connect(); err != nil {
				return 0, err
			}
		}
		stalled := time.AfterFunc(stallPatience, s.end)
		n, err := s.body.Read(p)
		stalled.Stop()
		s.offset += int64(n)
		if n > 0 {
			s.tries = 0
		}
		switch {
		case s.total >= 0 && s.offset > s.total:
			return 0, fatal{fmt.Errorf("the server sends more than the %d bytes that it announced", s.total)}
		case err == nil:
			return n, nil
		case errors.Is(err, io.EOF) && (s.total < 0 || s.offset == s.total):
			return n, io.EOF
		}
		s.hangUp()
		if err := s.pause(err); err != nil {
			return n, err
		}
		if n > 0 {
			return n, nil
		}
	}
}

// connect asks for the rest of the file.
func (s *stream) connect() error {
	for {
		ctx, end := context.WithCancel(s.ctx)
		a, err := s.server.get(ctx, s.offset, s.answer)
		if err == nil {
			s.answer, s.end = a, end
			return nil
		}
		end()
		if errors.Is(err, errOther) || errors.As(err, new(fatal)) {
			return err
		}
		if err := s.pause(err); err != nil {
			return err
		}
	}
}

func (s *stream) hangUp() {
	if s.body != nil {
		s.body.Close()
		s.end()
		s.body = nil
	}
}

// pause waits before the next try after an error; it returns an error if there is none.
func (s *stream) pause(failed error) error {
	if s.ctx.Err() != nil {
		return s.ctx.Err()
	}
	if s.offset > 0 && s.validator == "" {
		return errOther
	}
	if s.tries++; s.tries >= maxTries {
		return fatal{fmt.Errorf("the server was asked %d times in vain: %w", s.tries, failed)}
	}
	wait := min(s.server.pace<<(s.tries-1), mostPause)
	select {
	case <-s.ctx.Done():
		return s.ctx.Err()
	case <-time.After(wait):
		return nil
	}
}
