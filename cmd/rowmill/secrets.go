package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowmill/rowmill/cmd/rowmill/settings"
)

// A secret is a setting that takes effect while the node runs.
type secret struct {
	name string
	// of is what it says, the same text for the same secret.
	of func(settings.Settings) string
	// use has the node use it from now on.
	use func(settings.Settings) error
}

// secrets are those of a node, as they took effect last. Everything that settings come
// from is read again, and nothing but secrets is taken from it.
type secrets struct {
	*Main
	all   []secret
	mu    sync.Mutex
	used  map[string]string // by name; under mu
	plain string            // the other settings, as the node began with them

	said    string                 // the last trouble that was logged
	trouble atomic.Pointer[string] // the present one; nil for none
}

// openSecrets begins to look for changes.
func (m *Main) openSecrets(context.Context) error {
	if m.Reload == nil {
		return nil
	}
	s := &secrets{Main: m, all: m.rotating(), used: map[string]string{}, plain: plain(m.Settings)}
	for _, secret := range s.all {
		s.used[secret.name] = secret.of(m.Settings)
	}
	m.secrets = s
	halt, all := make(chan struct{}), sync.WaitGroup{}
	all.Go(func() { s.run(halt) })
	m.opened("secrets", func(context.Context) error { close(halt); all.Wait(); return nil })
	return nil
}

// rotating are the secrets that this node has a use for.
func (m *Main) rotating() []secret {
	all := []secret{{
		name: "api_key",
		of:   func(s settings.Settings) string { return strings.Join(s.APIKeys(), "\n") },
		use: func(s settings.Settings) error {
			if len(s.APIKeys()) == 0 {
				return errors.New("there is none any more; a node is started without one to have none")
			}
			m.API.SetAdminKeys(s.APIKeys())
			return nil
		},
	}}
	all = append(all, secret{
		name: "http.signing_key",
		of:   func(s settings.Settings) string { return s.HTTP.SigningKey.Reveal() },
		use: func(s settings.Settings) error {
			keys, err := s.HTTP.SigningKeys()
			if err != nil {
				return err
			}
			if m.signing != nil {
				if err := m.signing.Use(keys); err != nil {
					return err
				}
			}
			return m.API.SealWith(keys)
		},
	})
	if m.stream != nil {
		all = append(all, secret{
			name: "log.audit_webhook_secret",
			of:   func(s settings.Settings) string { return s.Log.AuditWebhookSecret.Reveal() },
			use: func(s settings.Settings) error {
				secrets, err := s.Log.AuditSecrets()
				if err == nil && len(secrets) == 0 {
					err = errors.New("there is none any more; a node is started without log.audit_webhook to have none")
				}
				if err == nil {
					m.stream.SetSecrets(secrets)
				}
				return err
			},
		})
	}
	if m.Cluster != nil {
		all = append(all, secret{
			name: "cluster.key",
			of:   func(s settings.Settings) string { return s.Cluster.Key.Reveal() },
			use: func(s settings.Settings) error {
				keys, err := s.Cluster.Keys()
				if err != nil {
					return err
				}
				return m.Cluster.SetKeys(keys)
			},
		})
	}
	if m.redis != nil {
		all = append(all, secret{
			name: "store.url",
			of:   func(s settings.Settings) string { return s.Store.URL.Reveal() },
			use:  func(s settings.Settings) error { return m.redis.SetURL(s.Store.URL.Reveal()) },
		})
	}
	if m.s3 != nil {
		all = append(all, secret{
			name: "objects.access_key",
			of: func(s settings.Settings) string {
				return s.Objects.AccessKey.Reveal() + "\n" + s.Objects.SecretKey.Reveal()
			},
			use: func(s settings.Settings) error {
				return m.s3.SetKeys(s.Objects.AccessKey.Reveal(), s.Objects.SecretKey.Reveal())
			},
		})
	}
	if m.Tracer != nil {
		all = append(all, secret{
			name: "tracing.headers",
			of:   func(s settings.Settings) string { return s.Tracing.Headers.Reveal() },
			use: func(s settings.Settings) error {
				headers, err := s.Tracing.HeaderValues()
				if err == nil {
					m.Tracer.SetHeaders(headers)
				}
				return err
			},
		})
	}
	for _, e := range m.Settings.Engines {
		name := e.DisplayName()
		find := func(s settings.Settings) string {
			for _, e := range s.Engines {
				if e.DisplayName() == name {
					return e.APIKey.Reveal()
				}
			}
			return ""
		}
		all = append(all, secret{
			name: "api_key of engine " + name,
			of:   find,
			use:  func(s settings.Settings) error { return m.named[name].SetAPIKey(find(s)) },
		})
	}
	return all
}

// run looks again and again, and when it is asked to.
func (s *secrets) run(halt <-chan struct{}) {
	var due <-chan time.Time
	if every := s.Settings.SecretsInterval; every > 0 {
		ticks := time.NewTicker(every)
		defer ticks.Stop()
		due = ticks.C
	}
	for {
		select {
		case <-halt:
			return
		case <-due:
			s.look()
		case <-s.Hangup:
			s.said = "" // whoever asks is told again
			changed := s.look()
			s.Logger.Info("secrets were read again", "changed", strings.Join(changed, ", "))
		}
	}
}

// look reads the settings, uses the secrets that have changed, and returns their names.
// What cannot be read or used leaves the former in use: a file may be half written, and
// is read again.
func (s *secrets) look() (changed []string) {
	now, err := s.Reload()
	if err != nil {
		s.tell(fmt.Sprintf("the settings cannot be read again, the former secrets stay in use: %v", err))
		return nil
	}
	var troubles []string
	for _, secret := range s.all {
		value := secret.of(now)
		if value == s.used[secret.name] {
			continue
		}
		if err := secret.use(now); err != nil {
			troubles = append(troubles, fmt.Sprintf("%s has changed and cannot be used, the former stays in use: %v", secret.name, err))
			continue
		}
		s.mu.Lock()
		s.used[secret.name] = value
		s.mu.Unlock()
		changed = append(changed, secret.name)
		s.Logger.Info("a secret has changed and is in use", "setting", secret.name)
	}
	if plain(now) != s.plain {
		troubles = append(troubles, "settings have changed that take effect with the next start")
	}
	s.tell(strings.Join(troubles, "; "))
	return changed
}

// tell has an operator know of a trouble, once; empty for none.
func (s *secrets) tell(trouble string) {
	if trouble == "" {
		s.trouble.Store(nil)
	} else {
		s.trouble.Store(&trouble)
	}
	if trouble != s.said && trouble != "" {
		s.Logger.Warn("settings were read again and do not all take effect", "reason", trouble)
	}
	s.said = trouble
}

// alike are the secrets that nodes have to have alike.
var alike = []string{"api_key", "http.signing_key", "cluster.key", "log.audit_webhook_secret"}

// fingerprints tell the secrets apart that nodes have to have alike, by name, without
// telling them. Each of several has its own, in their order.
func (m *Main) fingerprints() map[string]string {
	out := map[string]string{}
	if m.secrets == nil {
		return out
	}
	m.secrets.mu.Lock()
	defer m.secrets.mu.Unlock()
	for _, name := range alike {
		var marks []string
		for _, key := range strings.FieldsFunc(m.secrets.used[name], func(r rune) bool { return r == '\n' || r == '\r' || r == ',' || r == ' ' }) {
			marks = append(marks, fingerprint([]byte(key)))
		}
		if len(marks) > 0 {
			out[name] = strings.Join(marks, " ")
		}
	}
	if file := m.Settings.Cluster.TLSCA; file != "" {
		if text, err := os.ReadFile(file); err == nil {
			out["cluster.tls_ca"] = fingerprint(text)
		}
	}
	return out
}

// fingerprint is enough of a hash to tell few secrets apart, and too little to find one
// of 16 random bytes by it.
func fingerprint(secret []byte) string {
	sum := sha256.Sum256(secret)
	return hex.EncodeToString(sum[:4])
}

// plain are settings without their secrets.
func plain(set settings.Settings) string {
	if whole, err := filepath.Abs(set.Data); err == nil {
		set.Data = whole // as openStore has it
	}
	var text strings.Builder
	if err := set.Print(&text); err != nil {
		return err.Error() // never: a builder takes everything
	}
	return text.String()
}
