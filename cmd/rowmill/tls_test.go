package main

import (
	"crypto/tls"
	"crypto/x509"
	nethttp "net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/cmd/rowmill/doctor"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/http"
	"github.com/rowmill/rowmill/internal/certtest"
	"github.com/rowmill/rowmill/internal/must"
)

// issued writes a certificate for 127.0.0.1 and returns its files and a
// pool that trusts it.
func issued(t *testing.T) (certtest.Files, *x509.CertPool) {
	t.Helper()
	a := must.Get(certtest.NewAuthority())(t)
	files := must.Get(a.Issue(t.TempDir(), "127.0.0.1"))(t)
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
	request := must.Get(nethttp.NewRequestWithContext(t.Context(), nethttp.MethodGet, m.Listeners.URL+"/livez", nethttp.NoBody))(t)
	response, err := client.Do(request)
	must.Succeed(t, err)
	defer response.Body.Close()
	if response.StatusCode != nethttp.StatusOK || response.TLS == nil {
		t.Errorf("status %d, TLS %v", response.StatusCode, response.TLS != nil)
	}
}

// A node warns of a certificate that ends soon, and is not ready once it has ended.
func TestCertificateEnds(t *testing.T) {
	t.Parallel()
	files, _ := issued(t)
	for name, test := range map[string]struct {
		clock time.Duration
		ready bool
		says  string
	}{
		"soon": {0, true, "http.tls_cert is valid only until"},
		"over": {48 * time.Hour, false, "http.tls_cert has not been valid since"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := start(t, filepath.Join(t.TempDir(), "data"), func(s *settings.Settings) {
				s.HTTP.TLSCert, s.HTTP.TLSKey, s.ClockOffset = files.Cert, files.Key, test.clock
			})
			checks := m.Service.Checks(t.Context())
			i := slices.IndexFunc(checks, func(c http.ReadinessCheck) bool { return c.Name == "certificate" })
			if i < 0 || !strings.Contains(checks[i].Text, test.says) || checks[i].OK != test.ready {
				t.Errorf("checks %+v", checks)
			}
			families := must.Get(m.Registry.Gather())(t)
			cert := must.Get(doctor.ReadCertificate(files.Cert))(t)
			for _, family := range families {
				if family.GetName() == "rowmill_certificate_end_timestamp_seconds" {
					if at := family.GetMetric()[0].GetGauge().GetValue(); at != float64(cert.NotAfter.Unix()) {
						t.Errorf("the certificate ends at %v", at)
					}
					return
				}
			}
			t.Error("no metric of the certificate")
		})
	}
}
