package endpoints

import (
	"crypto/tls"
	"log/slog"
	"sync"
	"time"

	"github.com/vmlet/vmlet/internal/fingerprint"
)

// certificateAge is how long the files are not looked at again.
const certificateAge = time.Second

// certificate is a certificate and its key, as the files have them.
type certificate struct {
	files TLSConfig
	log   *slog.Logger
	now   func() time.Time

	mu     sync.Mutex
	key    string // what the files were when they were read last
	looked time.Time
	pair   *tls.Certificate
}

// newCertificate reads the files. What they are by then must be right.
func newCertificate(files TLSConfig, log *slog.Logger) (*certificate, error) {
	c := &certificate{files: files, log: log, now: time.Now}
	c.key, c.looked = c.state(), c.now()
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	c.pair = &pair
	return c, err
}

func (c *certificate) state() string { return fingerprint.All([]string{c.files.Cert, c.files.Key}) }

// get is for tls.Config. Files that don't fit, as while they are being replaced,
// leave the pair as it was; they are read again once they change.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.now(); now.Sub(c.looked) >= certificateAge {
		c.looked = now
		if key := c.state(); key != c.key {
			c.key = key
			c.load()
		}
	}
	return c.pair, nil
}

func (c *certificate) load() {
	pair, err := tls.LoadX509KeyPair(c.files.Cert, c.files.Key)
	if err != nil {
		c.log.Warn("the metrics' certificate stays as it was", "error", err)
		return
	}
	c.pair = &pair
	c.log.Info("the metrics' certificate was read again", "cert", c.files.Cert)
}
