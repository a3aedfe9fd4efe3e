package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowmill/rowmill/cmd/rowmill/settings"
)

// A secret is a setting that a running node reads again: if its value has changed, the
// node uses the new value without a restart.
type secret struct {
	name string
	// of returns the value of the secret as text, to notice changes.
	of func(settings.Settings) string
	// use makes the node use the value in these settings.
	use func(settings.Settings) error
}

// parsed makes a secret that has a format. parse returns an error for a value in
// another format.
func parsed[T any](name string, of func(settings.Settings) settings.Secret, parse func(settings.Settings) (T, error), use func(T) error) secret {
	return secret{name, func(set settings.Settings) string { return of(set).Reveal() }, func(set settings.Settings) error {
		value, err := parse(set)
		if err != nil {
			return err
		}
		return use(value)
	}}
}

// A rotating part of a node has secrets that can change while the node runs.
type rotating interface{ secrets() []secret }

// secrets holds the secrets that the node uses. It reads all settings again, but lets
// only changes of secrets take effect.
type secrets struct {
	part
	// Reload reads the settings again. If it is nil, secrets do not change.
	Reload func() (settings.Settings, error)
	// Hangup asks for a reload at once.
	Hangup <-chan os.Signal

	from  []rotating
	all   []secret
	mu    sync.Mutex
	used  map[string]string // by name; nil before Start; under mu
	plain string            // the other settings at the start of the node

	said    string                 // the last problem that was logged
	trouble atomic.Pointer[string] // the present problem; nil for none
}

// Start starts to look for changes.
func (s *secrets) Start(ctx context.Context) error {
	if s.Reload == nil {
		return nil
	}
	used := map[string]string{}
	for _, part := range s.from {
		for _, secret := range part.secrets() {
			s.all = append(s.all, secret)
			used[secret.name] = secret.of(s.Settings)
		}
	}
	s.plain = plain(s.Settings)
	s.mu.Lock()
	s.used = used
	s.mu.Unlock()
	s.run(ctx, "secrets", s.watch)
	return nil
}

// watch reads the settings again at each interval and at each Hangup.
func (s *secrets) watch(ctx context.Context) {
	var due <-chan time.Time
	if every := s.Settings.SecretsInterval; every > 0 {
		ticks := time.NewTicker(every)
		defer ticks.Stop()
		due = ticks.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-due:
			s.look()
		case <-s.Hangup:
			s.said = "" // log the problem again for the operator who asked
			changed := s.look()
			s.Logger.Info("secrets were read again", "changed", strings.Join(changed, ", "))
		}
	}
}

// look reads the settings, uses the changed secrets and returns their names. If one
// cannot be read or used, the old one stays in use: the file may be half written, and
// the next call of look reads the file again.
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
		troubles = append(troubles, "other settings have changed, and take effect only after a restart")
	}
	s.tell(strings.Join(troubles, "; "))
	return changed
}

// tell notes the present problem, and logs it if it is new; empty means no problem.
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

// alike names the secrets that must be equal on all nodes.
var alike = []string{"api_key", "http.signing_key", "cluster.key", "log.audit_webhook_secret"}

// fingerprints returns a short hash of each secret that must be equal on all nodes, by
// name. Nodes compare the hashes without showing the secrets. A setting with several
// secrets has one hash for each, in order.
func (s *secrets) fingerprints() map[string]string {
	out := map[string]string{}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used == nil {
		return out
	}
	for _, name := range alike {
		var marks []string
		for _, key := range strings.FieldsFunc(s.used[name], func(r rune) bool { return r == '\n' || r == '\r' || r == ',' || r == ' ' }) {
			marks = append(marks, fingerprint([]byte(key)))
		}
		if len(marks) > 0 {
			out[name] = strings.Join(marks, " ")
		}
	}
	if file := s.Settings.Cluster.TLSCA; file != "" {
		if text, err := os.ReadFile(file); err == nil {
			out["cluster.tls_ca"] = fingerprint(text)
		}
	}
	return out
}

// fingerprint returns a short hash. It is long enough to tell a few secrets apart, and
// too short to find a secret of 16 random bytes.
func fingerprint(secret []byte) string {
	sum := sha256.Sum256(secret)
	return hex.EncodeToString(sum[:4])
}

// plain returns the settings without their secrets, as text.
func plain(set settings.Settings) string {
	if whole, err := filepath.Abs(set.Data); err == nil {
		set.Data = whole // as openStore sets it
	}
	var text strings.Builder
	if err := set.Print(&text); err != nil {
		return err.Error() // never happens: writes to a builder do not fail
	}
	return text.String()
}
