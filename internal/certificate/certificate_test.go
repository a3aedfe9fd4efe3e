package certificate

import (
	"bytes"
	"crypto/x509"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/internal/certtest"
	"github.com/rowmill/rowmill/internal/must"
)

func issue(t *testing.T, dir string) certtest.Files {
	t.Helper()
	a := must.Get(certtest.NewAuthority())(t)
	files := must.Get(a.Issue(dir, "rowmill"))(t)
	return files
}

// Changed files are in use from the next connection, after all three fit together.
func TestCurrent(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	files := issue(t, t.TempDir())
	h := must.Get(Open(Files(files), nil, slog.New(slog.NewTextHandler(&log, nil))))(t)
	serial := func() string {
		cert := must.Get(h.GetCertificate(nil))(t)
		return cert.Leaf.SerialNumber.String()
	}
	first, pool := serial(), h.pool
	next := issue(t, t.TempDir())
	for i, file := range [][2]string{{next.Cert, files.Cert}, {next.CA, files.CA}, {next.Key, files.Key}} {
		if serial() != first {
			t.Errorf("with %d of 3 files replaced another certificate is in use", i)
		}
		text := must.Get(os.ReadFile(file[0]))(t)
		must.Succeed(t, os.WriteFile(file[1], text, 0o600))
	}
	second := serial()
	if _, now := h.Current(); second == first || now.Equal(pool) {
		t.Error("the files were replaced, but the old certificate is in use")
	}
	must.Succeed(t, os.Remove(files.Key))
	log.Reset()
	for range 3 {
		if serial() != second {
			t.Error("with a file missing another certificate is in use")
		}
	}
	if n := strings.Count(log.String(), "reading the certificate files failed"); n != 1 {
		t.Errorf("the log says %d times that a file is missing", n)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	good := issue(t, t.TempDir())
	for name, test := range map[string]struct {
		files Files
		check func(*x509.Certificate) error
		want  string
	}{
		"no file":          {Files{Cert: "/nonexistent", Key: good.Key}, nil, "no such file"},
		"two halves":       {Files{Cert: good.Cert, Key: issue(t, t.TempDir()).Key}, nil, "private key does not match"},
		"no authority":     {Files{Cert: good.Cert, Key: good.Key, CA: good.Key}, nil, "contains no certificate"},
		"refused by check": {Files(good), func(*x509.Certificate) error { return errors.New("not for us") }, "not for us"},
	} {
		if _, err := Open(test.files, test.check, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}
