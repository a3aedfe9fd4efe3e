// Package certtest issues certificates for tests: a small authority, and the files for
// a server or client.
package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// validity is how long before and after now certificates are valid. It is long because
// tests may use clocks that are wrong by hours.
const validity = 24 * time.Hour

// An Authority is a certificate authority that signs certificates for tests. Its own
// certificate is only in the files that it issues.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Files has the paths of a certificate's PEM files.
type Files struct{ Cert, Key, CA string }

// NewAuthority makes a new authority.
func NewAuthority() (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the authority's key: %w", err)
	}
	a := &Authority{key: key}
	a.cert, err = a.sign(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, &key.PublicKey)
	return a, err
}

// Pool returns a pool that trusts the authority.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// Issue writes node.crt, node.key and ca.crt into a folder: a certificate for
// servers and clients at these names or addresses.
func (a *Authority) Issue(dir string, hosts ...string) (Files, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Files{}, fmt.Errorf("make a key for %q: %w", hosts, err)
	}
	template := &x509.Certificate{
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	cert, err := a.sign(template, &key.PublicKey)
	if err != nil {
		return Files{}, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Files{}, fmt.Errorf("encode the key for %q: %w", hosts, err)
	}
	files := Files{Cert: filepath.Join(dir, "node.crt"), Key: filepath.Join(dir, "node.key"), CA: filepath.Join(dir, "ca.crt")}
	for file, block := range map[string]*pem.Block{
		files.Cert: {Type: "CERTIFICATE", Bytes: cert.Raw},
		files.Key:  {Type: "PRIVATE KEY", Bytes: der},
		files.CA:   {Type: "CERTIFICATE", Bytes: a.cert.Raw},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			return Files{}, err
		}
	}
	return files, nil
}

func (a *Authority) sign(c *x509.Certificate, public *ecdsa.PublicKey) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	c.SerialNumber, c.Subject = serial, pkix.Name{CommonName: serial.String()}
	c.NotBefore, c.NotAfter = time.Now().Add(-validity), time.Now().Add(validity)
	parent := a.cert
	if parent == nil {
		parent = c // the authority signs itself
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, public, a.key)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate: %w", err)
	}
	return x509.ParseCertificate(der)
}
