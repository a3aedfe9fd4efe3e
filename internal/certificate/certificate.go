// Package certificate loads a TLS certificate, and the authorities that sign peers'
// certificates, from files. It checks the files at each new connection, so replaced
// files are in use at once; existing connections continue. It does not know which side
// of a connection shows a certificate.
package certificate

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync"
)

// Files has the paths of PEM files.
type Files struct {
	Cert string // a certificate, then intermediate certificates
	Key  string // the private key of Cert
	CA   string // the authorities that sign peers' certificates; may be empty
}

// A Reloader reads certificate files again when they change. It has the last valid
// contents of the files.
type Reloader struct {
	files  Files
	check  func(leaf *x509.Certificate) error
	logger *slog.Logger

	mu       sync.Mutex
	contents [3][]byte // file contents of the last read, valid or not
	cert     tls.Certificate
	pool     *x509.CertPool
	failed   string // error text of the last read, so that it is logged only once; "" after a success
}

// Open reads the files. check may be nil; it returns an error if a certificate does not
// fit its purpose. If changed files are invalid or fail check, the old certificate
// stays in use.
func Open(files Files, check func(leaf *x509.Certificate) error, logger *slog.Logger) (*Reloader, error) {
	h := &Reloader{files: files, check: check, logger: logger}
	contents, err := h.read()
	if err != nil {
		return nil, err
	}
	if err := h.applyFiles(contents); err != nil {
		return nil, err
	}
	h.contents = contents
	return h, nil
}

func (h *Reloader) read() (contents [3][]byte, err error) {
	for i, name := range []string{h.files.Cert, h.files.Key, h.files.CA} {
		if name == "" {
			continue
		}
		if contents[i], err = os.ReadFile(name); err != nil {
			return contents, err
		}
	}
	return contents, nil
}

// applyFiles parses the file contents and stores the certificate and the pool.
func (h *Reloader) applyFiles(contents [3][]byte) error {
	cert, err := tls.X509KeyPair(contents[0], contents[1])
	if err != nil {
		return fmt.Errorf("certificate %s and key %s: %w", h.files.Cert, h.files.Key, err)
	}
	if h.check != nil {
		if err := h.check(cert.Leaf); err != nil {
			return fmt.Errorf("certificate %s: %w", h.files.Cert, err)
		}
	}
	var pool *x509.CertPool
	if h.files.CA != "" {
		pool = x509.NewCertPool()
		if !pool.AppendCertsFromPEM(contents[2]) {
			return fmt.Errorf("%s contains no certificate in PEM form", h.files.CA)
		}
	}
	h.cert, h.pool = cert, pool
	return nil
}

// Current returns the certificate and the authorities, which are nil without a CA file.
// While the files are invalid, for instance because only one of two files is replaced
// so far, it returns the last valid contents.
func (h *Reloader) Current() (tls.Certificate, *x509.CertPool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	contents, err := h.read()
	switch {
	case err != nil:
		if why := err.Error(); why != h.failed {
			h.failed = why
			h.logger.Warn("reading the certificate files failed, the old certificate stays in use", "err", err)
		}
		return h.cert, h.pool
	case bytes.Equal(contents[0], h.contents[0]) && bytes.Equal(contents[1], h.contents[1]) && bytes.Equal(contents[2], h.contents[2]):
		return h.cert, h.pool
	}
	h.contents, h.failed = contents, ""
	if err := h.applyFiles(contents); err != nil {
		h.logger.Warn("changed certificate files are invalid, the old certificate stays in use", "err", err)
	} else {
		h.logger.Info("certificate files were reloaded", "file", h.files.Cert)
	}
	return h.cert, h.pool
}

// GetCertificate returns the current certificate. It is a function for tls.Config.GetCertificate.
func (h *Reloader) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	cert, _ := h.Current()
	return &cert, nil
}
