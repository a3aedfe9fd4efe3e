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

// TLS names the PEM files for encryption: all three files, or none for connections
// without TLS. The files are read again when they change; existing connections
// continue.
type TLS struct {
	CertFile string // this node's certificate, followed by intermediate certificates
	KeyFile  string // private key of CertFile
	CAFile   string // the CA that signs the certificates of all nodes

	// Name is the DNS name in every node's certificate, which both sides check. Default
	// "rowmill". With one name for all nodes, certificates need no addresses, and other
	// certificates of the same CA are refused.
	Name string
}

func (t TLS) enabled() bool { return t.CertFile != "" || t.KeyFile != "" || t.CAFile != "" }

// identity holds the node's certificate and checks the certificates of other nodes.
type identity struct {
	name string                // DNS name that the certificate of every node has
	held *certificate.Reloader // this node's certificate and the CA, from files that may change
}

func newIdentity(files TLS, logger *slog.Logger) (*identity, error) {
	if files.CertFile == "" || files.KeyFile == "" || files.CAFile == "" {
		return nil, errors.New("TLS: set all of CertFile, KeyFile and CAFile, or none")
	}
	id := &identity{name: cmp.Or(files.Name, "rowmill")}
	var err error
	id.held, err = certificate.Open(certificate.Files{Cert: files.CertFile, Key: files.KeyFile, CA: files.CAFile}, id.check, logger)
	if err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return id, nil
}

// check returns an error if other nodes would refuse this node's certificate.
func (id *identity) check(leaf *x509.Certificate) error {
	if err := leaf.VerifyHostname(id.name); err != nil {
		return fmt.Errorf("the certificate lacks the DNS name %q that nodes require (subjectAltName = DNS:%s): %w", id.name, id.name, err)
	}
	return nil
}

// server returns the TLS configuration for connections from other nodes.
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
				// With session tickets, a resumed connection would skip the check of
				// the certificate against a changed CA.
				SessionTicketsDisabled: true,
				VerifyConnection:       id.checkName,
				NextProtos:             []string{"h2", "http/1.1"}, // for health checks; nodes do not ask for a protocol
			}, nil
		},
	}
}

// client returns the TLS configuration for one connection to another node.
func (id *identity) client() *tls.Config {
	cert, pool := id.held.Current()
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{cert},
		RootCAs:      pool,
		ServerName:   id.name,
	}
}

// checkName refuses a connection if the other node's certificate lacks the DNS name.
func (id *identity) checkName(state tls.ConnectionState) error {
	if err := state.PeerCertificates[0].VerifyHostname(id.name); err != nil {
		return fmt.Errorf("certificate of the asking node: %w", err)
	}
	return nil
}
