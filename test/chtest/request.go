package chtest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
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
	files  []*os.File
}

func (r *request) closeFiles() {
	for _, file := range r.files {
		file.Close()
	}
	r.files = nil
}

// inbox is what comes in on one connection.
type inbox struct {
	conn  *net.UnixConn
	files []*os.File // those that came since the last whole request
}

// Read makes it an io.Reader of the bytes.
func (in *inbox) Read(data []byte) (int, error) {
	n, files, err := receive(in.conn, data)
	in.files = append(in.files, files...)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return max(n, 0), err // of an error it is -1
}

func (in *inbox) closeFiles() {
	(&request{files: in.files}).closeFiles()
	in.files = nil
}

// badRequestError is of bytes that are no request, and not of the connection.
type badRequestError struct{ error }

func malformed(format string, args ...any) error { return badRequestError{fmt.Errorf(format, args...)} }

// readRequest reads the next request, but for its files. The buffer has room for the
// longest line.
func readRequest(in *bufio.Reader) (*request, error) {
	line, err := readLine(in)
	if err != nil {
		return nil, err
	}
	r, err := requestLine(line)
	for err == nil {
		if line, err = readLine(in); line == "" {
			break
		}
		err = r.header(line)
	}
	switch {
	case err != nil:
		return nil, err
	case r.length > maxBody:
		return nil, malformed("a body of %d bytes is more than the %d that are allowed", r.length, maxBody)
	case r.length > 0:
		r.body = make([]byte, r.length)
		_, err = io.ReadFull(in, r.body)
	}
	return r, err
}

func readLine(in *bufio.Reader) (string, error) {
	line, err := in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return "", malformed("a line is too long")
	}
	if text, ok := bytes.CutSuffix(line, []byte("\r\n")); ok || err != nil {
		return string(text), err
	}
	return "", malformed("a line ends with no carriage return")
}

// requestLine is strict about spaces, methods and versions.
func requestLine(line string) (*request, error) {
	method, rest, ok := strings.Cut(line, " ")
	uri, version, more := strings.Cut(rest, " ")
	if !ok || !more {
		return nil, malformed("the first line is not METHOD URI VERSION")
	}
	switch method {
	case "GET", "PUT", "PATCH", "DELETE":
	default:
		return nil, malformed("the method is not known")
	}
	if uri == "" || !utf8.ValidString(uri) {
		return nil, malformed("there is no URI")
	}
	if version != "HTTP/1.0" && version != "HTTP/1.1" {
		return nil, malformed("the version of HTTP is not known")
	}
	return &request{method: method, path: uri}, nil
}

// header takes the few that mean something. A body in chunks is none of them:
// without a length there is no body, and the chunks are no request.
func (r *request) header(line string) error {
	name, value, ok := strings.Cut(line, ":")
	if !ok || !utf8.ValidString(line) {
		return malformed("a header is not NAME: VALUE")
	}
	value = strings.TrimSpace(value)
	switch strings.ToLower(strings.TrimSpace(name)) {
	case "content-length":
		n, err := strconv.ParseUint(value, 10, 32)
		if err != nil {
			return malformed("the length of the body is not a number")
		}
		r.length = int(n)
	}
	return nil
}
