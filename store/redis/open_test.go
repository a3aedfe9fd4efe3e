package redis_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/port"
	"github.com/rowmill/rowmill/internal/redistest"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/redis"
)

// SetURL changes the password for new connections, and refuses another server.
func TestSetURL(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	command(t, server, "ACL", "SETUSER", "mill", "on", ">before", ">after", "+@all", "~*", "&*")
	at := func(password string) string { return "redis://mill:" + password + "@" + server.Addr() + "/0" }
	s := open(t, redis.Config{URL: at("before"), Timeouts: hasty})
	must.Succeed(t, s.SetURL(at("after")))
	command(t, server, "ACL", "SETUSER", "mill", "<before")
	command(t, server, "CLIENT", "KILL", "TYPE", "normal") // forces new connections
	if err := s.PutKey(t.Context(), store.APIKey{ID: "k", Account: "a", Role: "user", Hash: []byte("h"), Created: time.Unix(1, 0).UTC()}); err != nil {
		t.Errorf("with the new password: %v", err)
	}
	for _, url := range []string{"redis://mill:after@" + server.Addr() + "/1", "redis://127.0.0.1:1/0", "rediss://" + server.Addr() + "/0", "redis://"} {
		if err := s.SetURL(url); err == nil {
			t.Errorf("%s is taken", url)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		settings []string
		words    []string
	}{
		"Redis Cluster": {[]string{"cluster-enabled yes", fmt.Sprint("cluster-port ", port.ReserveForTest(t).Port)}, []string{"Redis Cluster mode", "Sentinels"}},
		"eviction":      {[]string{"maxmemory-policy allkeys-lru"}, []string{"allkeys-lru", "noeviction"}},
		"no password":   {[]string{"requirepass secret"}, []string{"asks for a password", "URL"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "no password" { // the harness needs the password from the start
				server := redistest.Start(t)
				command(t, server, "CONFIG", "SET", "requirepass", "secret")
				_, err := redis.Open(t.Context(), redis.Config{URL: server.URL()})
				says(t, "open", err, tt.words...)
				_, err = redis.Open(t.Context(), redis.Config{URL: "redis://:hunter2@" + server.Addr()})
				says(t, "open with a wrong password", err, "refuses the user or the password")
				if strings.Contains(fmt.Sprint(err), "hunter2") {
					t.Errorf("the error tells the password: %v", err)
				}
				open(t, redis.Config{URL: "redis://:secret@" + server.Addr()})
				return
			}
			server := redistest.Start(t, tt.settings...)
			_, err := redis.Open(t.Context(), redis.Config{URL: server.URL()})
			says(t, "open", err, tt.words...)
		})
	}
	t.Run("no server", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t)
		must.Succeed(t, server.Stop())
		_, err := redis.Open(t.Context(), redis.Config{URL: server.URL(), Timeouts: hasty})
		says(t, "open", err, server.Addr(), "cannot be reached")
		_, err = redis.Open(t.Context(), redis.Config{URL: "redis+sentinel://" + server.Addr() + "/main", Timeouts: hasty})
		says(t, "open through Sentinels", err, server.Addr(), "no Sentinel knows the Redis primary")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := redis.Open(ended, redis.Config{URL: server.URL()}); err == nil {
			t.Error("opened after the context has ended")
		}
	})
	t.Run("no TLS handshake", func(t *testing.T) {
		t.Parallel()
		silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts connections, but no program answers
		must.Succeed(t, err)
		defer silent.Close()
		_, err = redis.Open(t.Context(), redis.Config{URL: "rediss://" + silent.Addr().String(), Timeouts: redis.Timeouts{Dial: 50 * time.Millisecond, Retry: time.Nanosecond}})
		says(t, "open", err, silent.Addr().String(), "cannot be reached")
	})
	t.Run("another schema", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t)
		command(t, server, "HSET", "p:meta", "schema", "99")
		_, err := redis.Open(t.Context(), redis.Config{URL: server.URL(), Prefix: "p:"})
		says(t, "open", err, "schema version \"99\"", "start the version of rowmill that wrote them", "p:")
		open(t, redis.Config{URL: server.URL(), Prefix: "q:"})
	})
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for url, word := range map[string]string{
		"":                               "it is empty",
		"localhost:6379":                 "it has no scheme",
		"http://localhost:6379":          `the scheme is "http"`,
		"redis://:hunter2@localhost":     `"localhost" is not host:port`,
		"redis://:hunter2@localhost:x":   "is not host:port",
		"redis://:hunter2@h:1,i:2/0":     "2 servers",
		"redis://:hunter2@h:1/zero":      `"zero" is not a database number`,
		"redis://:%zzhunter2@h:1/0":      "cannot be read",
		"redis+sentinel://:hunter2@h:1":  "name is missing",
		"redis+sentinel://h:1,i/main/0":  `"i" is not host:port`,
		"redis+sentinel://h:1/main/some": `"some" is not a database number`,
	} {
		err := redis.Config{URL: url}.Validate()
		says(t, url, err, "URL", word, "redis+sentinel://")
		if strings.Contains(fmt.Sprint(err), "hunter2") {
			t.Errorf("%s: the error tells the password: %v", url, err)
		}
	}
	for _, url := range []string{
		"redis://h:1", "redis://h:1/", "redis://h:1/3", "rediss://user:p%40ss@h:1/0", "redis://[::1]:6379",
		"redis+sentinel://user:p@ss@h:1,i:2,j:3/main/0", "rediss+sentinel://h:1/main",
	} {
		if err := (redis.Config{URL: url}).Validate(); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	for field, c := range map[string]redis.Config{
		"Timeouts.Dial":   {Timeouts: redis.Timeouts{Dial: -1}},
		"Timeouts.Answer": {Timeouts: redis.Timeouts{Answer: -1}},
		"Timeouts.Retry":  {Timeouts: redis.Timeouts{Retry: -1}},
		"PoolSize":        {PoolSize: -1},
		"Prefix":          {Prefix: "\x00"},
	} {
		c.URL = "redis://h:1"
		says(t, field, c.Validate(), field)
	}
}

// TestDurability changes settings of the server while the store is open.
func TestDurability(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	registry := prometheus.NewRegistry()
	s := open(t, redis.Config{URL: server.URL(), Metrics: registry})
	check := func(s *redis.Store, words ...string) {
		t.Helper()
		warned, err := s.ListDurabilityRisks(t.Context())
		if err != nil || len(warned) != len(words) {
			t.Fatalf("%d sentences, %v: %q; want %q", len(warned), err, warned, words)
		}
		for i, word := range words {
			if !strings.Contains(warned[i], word) {
				t.Errorf("sentence %q, want it to say %q", warned[i], word)
			}
		}
	}
	set := func(name, value string) { command(t, server, "CONFIG", "SET", name, value) }
	check(s)
	set("appendfsync", "everysec")
	check(s, "up to two seconds")
	set("appendfsync", "no")
	set("no-appendfsync-on-rewrite", "yes")
	set("maxmemory-policy", "volatile-ttl")
	check(s, "appendfsync no", "while it rewrites", "volatile-ttl")
	set("maxmemory-policy", "noeviction")
	set("no-appendfsync-on-rewrite", "no")
	set("appendfsync", "always")

	command(t, server, "ACL", "SETUSER", "app", "on", ">secret", "~rowmill:*", "+@all", "-config")
	bound := open(t, redis.Config{URL: "redis://app:secret@" + server.Addr()})
	check(bound, "does not say when it syncs")
	prepared(t, bound) // needs only permissions for the keys of the prefix

	set("appendonly", "no")
	check(s, "no append-only file")
	check(bound, "no append-only file")
	set("appendonly", "yes")

	replica := redistest.Start(t, fmt.Sprintf("replicaof 127.0.0.1 %d", server.Port()))
	waitFor(t, replica, "replication", "master_link_status:up")
	check(s, "(1 connected): a failover loses what the new primary had not received, without a bound")
	set("min-replicas-to-write", "1")
	check(s, "min-replicas-to-write 1 bounds")

	if families, err := registry.Gather(); err != nil || len(families) == 0 {
		t.Errorf("metrics: %d families, %v", len(families), err)
	}
}
