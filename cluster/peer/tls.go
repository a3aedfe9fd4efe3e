package peer

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// TLS names PEM files: all three, or none for plain connections. They are read
// again when they change; connections that exist go on.
type TLS struct {
	CertFile string // this node's certificate, then intermediate ones
	KeyFile  string // its private key
	CAFile   string // who may have signed the others' certificates

	// Name is the DNS name that every node's certificate carries, checked on
	// both sides. Default "rowmill". One name for all spares certificates with
	// addresses in them, and keeps out what else the same CA has signed.
	Name string
}

func (t TLS) enabled() bool { return t.CertFile != "" || t.KeyFile != "" || t.CAFile != "" }

// identity holds what the files of a TLS said last.
type identity struct {
	files  TLS
	logger *slog.Logger

	mu     sync.Mutex
	stamps [3]stamp // of the files that were read last, good or bad
	cert   tls.Certificate
	pool   *x509.CertPool
}

// stamp tells one content of a file from the next.
type stamp struct {
	modified time.Time
	size     int64
}

func newIdentity(files TLS, logger *slog.Logger) (*identity, error) {
	if files.CertFile == "" || files.KeyFile == "" || files.CAFile == "" {
		return nil, errors.New("TLS: CertFile, KeyFile and CAFile belong together; set all of them or none")
	}
	if files.Name == "" {
		files.Name = "rowmill"
	}
	id := &identity{files: files, logger: logger}
	id.stamps = id.look()
	if err := id.load(); err != nil {
		return nil, err
	}
	return id, nil
}

// look returns what tells the files from their next contents.
func (id *identity) look() (stamps [3]stamp) {
	for i, file := range []string{id.files.CertFile, id.files.KeyFile, id.files.CAFile} {
		if info, err := os.Stat(file); err == nil {
			stamps[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	return stamps
}

// load reads the files and checks that other nodes would accept them.
func (id *identity) load() error {
	cert, err := tls.LoadX509KeyPair(id.files.CertFile, id.files.KeyFile)
	if err != nil {
		return fmt.Errorf("TLS: read CertFile %s and KeyFile %s: %w", id.files.CertFile, id.files.KeyFile, err)
	}
	if err := cert.Leaf.VerifyHostname(id.files.Name); err != nil {
		return fmt.Errorf("TLS: CertFile %s lacks the DNS name %q that nodes look for (subjectAltName = DNS:%s): %w",
			id.files.CertFile, id.files.Name, id.files.Name, err)
	}
	text, err := os.ReadFile(id.files.CAFile)
	if err != nil {
		return fmt.Errorf("TLS: read CAFile: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return fmt.Errorf("TLS: CAFile %s holds no certificate in PEM form", id.files.CAFile)
	}
	id.cert, id.pool = cert, pool
	return nil
}

// current returns what the files hold. While they cannot be used, for instance
// because only one of two has been replaced yet, what was read before stays.
func (id *identity) current() (tls.Certificate, *x509.CertPool) {
	id.mu.Lock()
	defer id.mu.Unlock()
	stamps := id.look()
	if stamps == id.stamps {
		return id.cert, id.pool
	}
	id.stamps = stamps
	if err := id.load(); err != nil {
		id.logger.Warn("changed certificate files cannot be used, the former ones stay in use", "err", err)
	} else {
		id.logger.Info("certificate files were read again", "file", id.files.CertFile)
	}
	return id.cert, id.pool
}

// server is the configuration of a listener.
func (id *identity) server() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			cert, pool := id.current()
			return &tls.Config{
				MinVersion:   tls.VersionTLS13,
				Certificates: []tls.Certificate{cert},
				ClientAuth:   tls.RequireAndVerifyClientCert,
				ClientCAs:    pool,
				// A resumed session would not ask whether the CA is still ours.
				SessionTicketsDisabled: true,
				VerifyConnection:       id.checkName,
			}, nil
		},
	}
}

// client is the configuration of one connection.
func (id *identity) client() *tls.Config {
	cert, pool := id.current()
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{cert},
		RootCAs:      pool,
		ServerName:   id.files.Name,
	}
}

func (id *identity) checkName(state tls.ConnectionState) error {
	if err := state.PeerCertificates[0].VerifyHostname(id.files.Name); err != nil {
		return fmt.Errorf("certificate of the asking node: %w", err)
	}
	return nil
}
