package peer

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"

	"github.com/rowmill/rowmill/internal/certificate"
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

// identity is how a node shows itself, and whom it takes for another.
type identity struct {
	name string // of every node
	held *certificate.Reloader
}

func newIdentity(files TLS, logger *slog.Logger) (*identity, error) {
	if files.CertFile == "" || files.KeyFile == "" || files.CAFile == "" {
		return nil, errors.New("TLS: CertFile, KeyFile and CAFile belong together; set all of them or none")
	}
	id := &identity{name: cmp.Or(files.Name, "rowmill")}
	var err error
	id.held, err = certificate.Open(certificate.Files{Cert: files.CertFile, Key: files.KeyFile, CA: files.CAFile}, id.check, logger)
	if err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return id, nil
}

// check says whether other nodes would accept a certificate.
func (id *identity) check(leaf *x509.Certificate) error {
	if err := leaf.VerifyHostname(id.name); err != nil {
		return fmt.Errorf("it lacks the DNS name %q that nodes look for (subjectAltName = DNS:%s): %w", id.name, id.name, err)
	}
	return nil
}

// server is the configuration of a listener.
func (id *identity) server() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			cert, pool := id.held.Current()
			return &tls.Config{
				MinVersion:   tls.VersionTLS13,
				Certificates: []tls.Certificate{cert},
				ClientAuth:   tls.RequireAndVerifyClientCert,
				ClientCAs:    pool,
				// A resumed session would not ask whether the CA is still ours.
				SessionTicketsDisabled: true,
				VerifyConnection:       id.checkName,
				NextProtos:             []string{"h2", "http/1.1"}, // nodes ask for neither
			}, nil
		},
	}
}

// client is the configuration of one connection.
func (id *identity) client() *tls.Config {
	cert, pool := id.held.Current()
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{cert},
		RootCAs:      pool,
		ServerName:   id.name,
	}
}

func (id *identity) checkName(state tls.ConnectionState) error {
	if err := state.PeerCertificates[0].VerifyHostname(id.name); err != nil {
		return fmt.Errorf("certificate of the asking node: %w", err)
	}
	return nil
}
