// Package certificate holds a certificate, and the authorities that others' must come
// from, as files have them: they are read with each connection that begins, so that
// another certificate is in use from the moment its files are there. Connections that
// exist go on. It does not know who shows what to whom.
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

// Files names PEM files.
type Files struct {
	Cert string // a certificate, then intermediate ones
	Key  string // its private key
	CA   string // who may have signed others' certificates; empty for nobody
}

// Held is what the files said last that could be used.
type Held struct {
	files  Files
	check  func(leaf *x509.Certificate) error
	logger *slog.Logger

	mu     sync.Mutex
	texts  [3][]byte // what was read last, good or bad
	cert   tls.Certificate
	pool   *x509.CertPool
	failed string // why the files could not be read at all
}

// Open reads the files. check, which may be nil, says what is wrong with a certificate
// for its purpose; then the former one stays, as where a file cannot be used.
func Open(files Files, check func(leaf *x509.Certificate) error, logger *slog.Logger) (*Held, error) {
	h := &Held{files: files, check: check, logger: logger}
	texts, err := h.read()
	if err != nil {
		return nil, err
	}
	if err := h.use(texts); err != nil {
		return nil, err
	}
	h.texts = texts
	return h, nil
}

func (h *Held) read() (texts [3][]byte, err error) {
	for i, name := range []string{h.files.Cert, h.files.Key, h.files.CA} {
		if name == "" {
			continue
		}
		if texts[i], err = os.ReadFile(name); err != nil {
			return texts, err
		}
	}
	return texts, nil
}

// use makes the certificate and the pool of what was read.
func (h *Held) use(texts [3][]byte) error {
	cert, err := tls.X509KeyPair(texts[0], texts[1])
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
		if !pool.AppendCertsFromPEM(texts[2]) {
			return fmt.Errorf("%s holds no certificate in PEM form", h.files.CA)
		}
	}
	h.cert, h.pool = cert, pool
	return nil
}

// Current returns the certificate and the authorities, nil where there are none. While
// the files cannot be used, for instance because only one of two has been replaced yet,
// it is what they held before.
func (h *Held) Current() (tls.Certificate, *x509.CertPool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	texts, err := h.read()
	switch {
	case err != nil:
		if why := err.Error(); why != h.failed {
			h.failed = why
			h.logger.Warn("certificate files cannot be read, the former ones stay in use", "err", err)
		}
		return h.cert, h.pool
	case bytes.Equal(texts[0], h.texts[0]) && bytes.Equal(texts[1], h.texts[1]) && bytes.Equal(texts[2], h.texts[2]):
		return h.cert, h.pool
	}
	h.texts, h.failed = texts, ""
	if err := h.use(texts); err != nil {
		h.logger.Warn("changed certificate files cannot be used, the former ones stay in use", "err", err)
	} else {
		h.logger.Info("certificate files were read again", "file", h.files.Cert)
	}
	return h.cert, h.pool
}

// Get is Current for tls.Config.GetCertificate.
func (h *Held) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	cert, _ := h.Current()
	return &cert, nil
}
