package chtest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits of the HTTP server that version 53 has (micro_http's connection.rs and
// server.rs).
const (
	maxLine        = 1024  // of the request's line and of each header, in bytes
	maxBody        = 51200 // in bytes
	maxConnections = 10
)

// request is one that has come in whole.
type request struct {
	method string
	path   string
	length int
	body   []byte // nil if there is none, which a length of 0 means too
	expect bool   // of an "HTTP/1.1 100" before the body
	files  []*os.File
}

func (r *request) closeFiles() {
	for _, file := range r.files {
		file.Close()
	}
	r.files = nil
}

// parser puts requests together from what comes in on one connection.
type parser struct {
	data    []byte
	files   []*os.File // those that came since the last whole request
	pending *request   // whose headers are being read
	inBody  bool
}

// feed takes bytes and the files that came with them, and returns the requests
// that are whole with them. Bytes that are no request are an error, after which
// nothing that came before is answered.
func (p *parser) feed(data []byte, files []*os.File) (whole []*request, expect bool, err error) {
	p.data = append(p.data, data...)
	p.files = append(p.files, files...)
	for {
		more, err := p.step(&expect)
		if err != nil {
			for _, r := range whole {
				r.closeFiles()
			}
			p.reset()
			return nil, false, err
		}
		if !more {
			return whole, expect, nil
		}
		if r := p.pending; r != nil && p.inBody && len(r.body) == r.length {
			if r.length == 0 {
				r.body = nil
			}
			r.files, p.files = p.files, nil
			p.pending, p.inBody = nil, false
			whole = append(whole, r)
		}
	}
}

func (p *parser) reset() {
	(&request{files: p.files}).closeFiles()
	*p = parser{}
}

// step reads a line or the body, and tells whether there was one.
func (p *parser) step(expect *bool) (bool, error) {
	if p.inBody {
		want := p.pending.length
		if len(p.data) < want {
			return false, nil
		}
		p.pending.body = bytes.Clone(p.data[:want])
		p.data = p.data[want:]
		return true, nil
	}
	end := bytes.Index(p.data, []byte("\r\n"))
	if end < 0 || end+2 > maxLine {
		if len(p.data) >= maxLine {
			return false, errors.New("a line is too long")
		}
		return false, nil
	}
	line := string(p.data[:end])
	p.data = p.data[end+2:]
	switch {
	case p.pending == nil:
		r, err := requestLine(line)
		p.pending = r
		return true, err
	case line != "":
		return true, p.pending.header(line)
	case p.pending.length > maxBody:
		return false, fmt.Errorf("a body of %d bytes is more than the %d that are allowed", p.pending.length, maxBody)
	}
	p.inBody = true
	*expect = *expect || p.pending.expect && p.pending.length > 0
	return true, nil
}

// requestLine is strict about spaces, methods and versions.
func requestLine(line string) (*request, error) {
	method, rest, ok := strings.Cut(line, " ")
	uri, version, more := strings.Cut(rest, " ")
	if !ok || !more {
		return nil, errors.New("the first line is not METHOD URI VERSION")
	}
	switch method {
	case "GET", "PUT", "PATCH", "DELETE":
	default:
		return nil, errors.New("the method is not known")
	}
	if uri == "" || !utf8.ValidString(uri) {
		return nil, errors.New("there is no URI")
	}
	if version != "HTTP/1.0" && version != "HTTP/1.1" {
		return nil, errors.New("the version of HTTP is not known")
	}
	return &request{method: method, path: absolutePath(uri)}, nil
}

// absolutePath is a URI without scheme and host. A query stays part of it.
func absolutePath(uri string) string {
	if host, ok := strings.CutPrefix(uri, "http://"); ok {
		slash := strings.IndexByte(host, '/')
		if slash < 0 {
			return ""
		}
		return host[slash:]
	}
	if strings.HasPrefix(uri, "/") {
		return uri
	}
	return ""
}

// header takes the few that mean something. A body in chunks is none of them:
// without a length there is no body, and the chunks are no request.
func (r *request) header(line string) error {
	name, value, ok := strings.Cut(line, ":")
	if !ok || !utf8.ValidString(line) {
		return errors.New("a header is not NAME: VALUE")
	}
	value = strings.TrimSpace(value)
	switch strings.ToLower(strings.TrimSpace(name)) {
	case "content-length":
		n, err := strconv.ParseUint(value, 10, 32)
		if err != nil {
			return errors.New("the length of the body is not a number")
		}
		r.length = int(n)
	case "expect":
		r.expect = r.expect || value == "100-continue"
	case "accept-encoding":
		return acceptEncoding(value)
	}
	return nil
}

// acceptEncoding refuses what forbids an answer that isn't compressed.
func acceptEncoding(value string) error {
	if value == "" {
		return errors.New("Accept-Encoding is empty")
	}
	for part := range strings.SplitSeq(value, ",") {
		switch part = strings.TrimSpace(part); {
		case part == "identity;q=0", part == "*;q=0" && !strings.Contains(value, "identity"):
			return errors.New("Accept-Encoding forbids the only encoding there is")
		}
	}
	return nil
}
