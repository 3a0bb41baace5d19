// Package location reads what users write of a file on a web server: its URL, the headers of
// requests for it, and its checksum. It is pure, so that admission and the importer read alike.
package location

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"net/url"
	"strings"
)

const (
	maxURL    = 4 << 10
	maxHeader = 8 << 10
)

// URL reads the URL of a file. Errors don't repeat it: it may have a password.
func URL(text string) (*url.URL, error) {
	if len(text) > maxURL {
		return nil, fmt.Errorf("the URL has %d bytes: name one of at most %d", len(text), maxURL)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("this is no URL: name one that begins with http:// or https://")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("the scheme %.20q is not supported: name a URL that begins with http:// or https://", u.Scheme)
	case u.Hostname() == "":
		return nil, errors.New("the URL names no host")
	}
	return u, nil
}

// Public is a URL without what may be secret in it, for messages.
func Public(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// Header reads a header of a request. Errors have no value in them: it may be a password.
func Header(line string) (name, value string, err error) {
	line = strings.TrimRight(line, "\r\n")
	name, value, found := strings.Cut(line, ":")
	value = strings.TrimSpace(value)
	switch {
	case len(line) > maxHeader:
		return "", "", fmt.Errorf("the header has %d bytes: write one of at most %d", len(line), maxHeader)
	case !found || name == "":
		return "", "", errors.New("this is no header: write NAME: VALUE")
	case strings.ContainsFunc(name, func(r rune) bool { return !isToken(r) }):
		return "", "", errors.New("the header's name has a character that names can't have: write NAME: VALUE")
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		return "", "", fmt.Errorf("the value of header %s has a control character", name)
	}
	return name, value, nil
}

// isToken: the character may be in a header's name (RFC 9110, 5.6.2).
func isToken(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

// Checksum is of a file: what it is reckoned by, and what it is to be.
type Checksum struct {
	Hash hash.Hash
	Want []byte
}

// ParseChecksum reads "ALGORITHM:DIGITS".
func ParseChecksum(text string) (Checksum, error) {
	algorithm, digits, _ := strings.Cut(text, ":")
	var c Checksum
	switch strings.ToLower(algorithm) {
	case "sha256":
		c.Hash = sha256.New()
	case "sha512":
		c.Hash = sha512.New()
	case "sha1":
		c.Hash = sha1.New()
	case "md5":
		c.Hash = md5.New()
	default:
		return c, fmt.Errorf("the checksum's algorithm %.20q is not supported: write sha256:, sha512:, sha1: or md5:, and the digits", algorithm)
	}
	var err error
	if c.Want, err = hex.DecodeString(digits); err != nil || len(c.Want) != c.Hash.Size() {
		return c, fmt.Errorf("a checksum by %s has %d hexadecimal digits after the colon", algorithm, 2*c.Hash.Size())
	}
	return c, nil
}
