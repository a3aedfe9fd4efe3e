package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	nethttp "net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/cmd/rowmill/settings"
)

// certificate writes a self-signed certificate for 127.0.0.1 and returns its
// files and a pool that trusts it.
func certificate(t *testing.T) (cert, key string, trusted *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	write := func(name, kind string, bytes []byte) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	trusted = x509.NewCertPool()
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	trusted.AddCert(parsed)
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", secret), trusted
}

func TestServeHTTPS(t *testing.T) {
	t.Parallel()
	cert, key, trusted := certificate(t)
	m := start(t, filepath.Join(t.TempDir(), "data"), func(s *settings.Settings) {
		s.HTTP.TLSCert, s.HTTP.TLSKey = cert, key
	})
	if !strings.HasPrefix(m.URL, "https://") {
		t.Fatalf("the node says it answers at %s, want https", m.URL)
	}
	transport := &nethttp.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	client := &nethttp.Client{Transport: transport}
	request, err := nethttp.NewRequestWithContext(t.Context(), nethttp.MethodGet, m.URL+"/livez", nethttp.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != nethttp.StatusOK || response.TLS == nil {
		t.Errorf("status %d, TLS %v", response.StatusCode, response.TLS != nil)
	}
}
