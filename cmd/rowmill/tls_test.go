package main

import (
	"crypto/tls"
	"crypto/x509"
	nethttp "net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/internal/certtest"
)

// issued writes a certificate for 127.0.0.1 and returns its files and a
// pool that trusts it.
func issued(t *testing.T) (certtest.Files, *x509.CertPool) {
	t.Helper()
	a, err := certtest.NewAuthority()
	noError(t, err)
	files, err := a.Issue(t.TempDir(), "127.0.0.1")
	noError(t, err)
	return files, a.Pool()
}

func TestServeHTTPS(t *testing.T) {
	t.Parallel()
	files, trusted := issued(t)
	m := start(t, filepath.Join(t.TempDir(), "data"), func(s *settings.Settings) {
		s.HTTP.TLSCert, s.HTTP.TLSKey = files.Cert, files.Key
	})
	if !strings.HasPrefix(m.Listeners.URL, "https://") {
		t.Fatalf("the node says it answers at %s, want https", m.Listeners.URL)
	}
	transport := &nethttp.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	client := &nethttp.Client{Transport: transport}
	request, err := nethttp.NewRequestWithContext(t.Context(), nethttp.MethodGet, m.Listeners.URL+"/livez", nethttp.NoBody)
	noError(t, err)
	response, err := client.Do(request)
	noError(t, err)
	defer response.Body.Close()
	if response.StatusCode != nethttp.StatusOK || response.TLS == nil {
		t.Errorf("status %d, TLS %v", response.StatusCode, response.TLS != nil)
	}
}
