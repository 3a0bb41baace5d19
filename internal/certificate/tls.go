package certificate

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
)

// now is the certificate in use.
func (k *Keeper) now() (*issued, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current == nil {
		return nil, fmt.Errorf("no certificate yet: %w", k.reason)
	}
	return k.current, nil
}

// GetCertificate is for the tls.Config of a server whose clients have no certificates.
func (k *Keeper) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c, err := k.now()
	if err != nil {
		return nil, err
	}
	return &c.pair, nil
}

// GetClientCertificate is for a client's tls.Config.
func (k *Keeper) GetClientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return k.GetCertificate(nil)
}

// ServerConfig is of a server that talks TLS 1.3 to clients with certificates of the same
// signer. Who of them may do what is for the server to say. Handshakes fail as long as there
// is no certificate.
func (k *Keeper) ServerConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			c, err := k.now()
			if err != nil {
				return nil, err
			}
			return &tls.Config{
				MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{c.pair},
				ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: c.roots,
				// A session that is resumed is not verified again by the CAs of the day.
				SessionTicketsDisabled: true,
			}, nil
		},
	}
}

// ClientConfig is of a client that talks TLS 1.3 to a server whose certificate is of the
// same signer and has the host name ServerName, which the caller sets in a clone: without
// it handshakes fail.
func (k *Keeper) ClientConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"},
		GetClientCertificate: k.GetClientCertificate,
		// RootCAs would be those of today for ever: VerifyConnection verifies in its place.
		InsecureSkipVerify: true,
		VerifyConnection:   k.verifyServer,
	}
}

func (k *Keeper) verifyServer(s tls.ConnectionState) error {
	c, err := k.now()
	if err != nil {
		return err
	}
	if len(s.PeerCertificates) == 0 || s.ServerName == "" {
		return errors.New("the server has no certificate, or nobody said whose it must be")
	}
	_, err = s.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: c.roots, DNSName: s.ServerName, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return err
}
