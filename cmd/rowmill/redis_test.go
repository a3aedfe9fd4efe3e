package main

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/redistest"
)

// opensRecords opens the records that the settings name, and returns the error.
func opensRecords(t *testing.T, store settings.RecordStore) error {
	t.Helper()
	store.Prefix = "mill:"
	m := prepare(t, t.TempDir(), func(s *settings.Settings) {
		s.Store, s.Objects.Shared = store, true
		must.Succeed(t, s.Validate())
	})
	err := m.Storage.openStore(t.Context())
	if err == nil {
		err = m.Storage.Store.Ping(t.Context())
	}
	if closing := m.Storage.Stop(t.Context()); closing != nil {
		t.Error(closing)
	}
	return err
}

// wantErrors checks that err contains all words. Without words, err must be nil.
func wantErrors(t *testing.T, what string, err error, words ...string) {
	t.Helper()
	if len(words) == 0 && err != nil {
		t.Errorf("%s: %v", what, err)
	}
	for _, word := range words {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v; want it to say %q", what, err, word)
		}
	}
}

func TestRedisOverTLS(t *testing.T) {
	t.Parallel()
	files, _ := issued(t)
	other, _ := issued(t)
	_, port, err := net.SplitHostPort(freeAddress(t))
	must.Succeed(t, err)
	redistest.Start(t, "tls-port "+port, "tls-cert-file "+files.Cert, "tls-key-file "+files.Key, "tls-auth-clients no")
	url := settings.Secret("rediss://127.0.0.1:" + port + "/0")
	wantErrors(t, "its authority", opensRecords(t, settings.RecordStore{URL: url, TLSCA: files.CA}))
	wantErrors(t, "another authority", opensRecords(t, settings.RecordStore{URL: url, TLSCA: other.CA}), "store.url", "certificate is not trusted")
	wantErrors(t, "the system's authorities", opensRecords(t, settings.RecordStore{URL: url}), "certificate is not trusted")
	wantErrors(t, "no file", opensRecords(t, settings.RecordStore{URL: url, TLSCA: filepath.Join(t.TempDir(), "none")}), "store.tls_ca", "no such file")
	wantErrors(t, "a key", opensRecords(t, settings.RecordStore{URL: url, TLSCA: files.Key}), "store.tls_ca", "holds no certificate")
}

func TestSentinelWithAPassword(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t, "mill", redistest.Start(t), time.Second)
	for _, rule := range [][]string{
		{"ACL", "SETUSER", "watcher", "on", ">secret", "+@all", "~*", "&*"},
		{"ACL", "SETUSER", "default", "off"},
	} {
		must.Get(sentinel.Command(rule...))(t)
	}
	url := settings.Secret("redis+sentinel://" + sentinel.Addr() + "/mill/0")
	wantErrors(t, "with the password", opensRecords(t, settings.RecordStore{URL: url, SentinelUser: "watcher", SentinelPassword: "secret", AllowLostWrites: true}))
	wantErrors(t, "without it", opensRecords(t, settings.RecordStore{URL: url}), "store.url", "the Sentinels refuse user or password")
	wantErrors(t, "with another", opensRecords(t, settings.RecordStore{URL: url, SentinelUser: "watcher", SentinelPassword: "x"}), "set the login of the Sentinels separately")
}
