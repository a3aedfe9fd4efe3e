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

// A reloadableSecret is a setting that a running node reads again: if its value has changed, the
// node uses the new value without a restart.
type reloadableSecret struct {
	name string
	// valueIn returns the secret in these settings as text. If this text changes, the secret
	// has changed.
	valueIn func(settings.Settings) string
	// apply makes the node use the secret in these settings.
	apply func(settings.Settings) error
}

// newParsedSecret returns a secret whose value has a format. parse reads the value from settings
// and returns an error if the format is wrong; use makes the node use the value.
func newParsedSecret[T any](name string, secretIn func(settings.Settings) settings.Secret, parse func(settings.Settings) (T, error), use func(T) error) reloadableSecret {
	return reloadableSecret{name, func(set settings.Settings) string { return secretIn(set).Reveal() }, func(set settings.Settings) error {
		value, err := parse(set)
		if err != nil {
			return err
		}
		return use(value)
	}}
}

// A secretHolder part of a node has secrets that can change while the node runs, such as a
// part with an API key.
type secretHolder interface{ reloadableSecrets() []reloadableSecret }

// secretReloader is the part of a node that reads the settings again while the node runs.
// Changed secrets take effect at once, other changed settings only after a restart.
type secretReloader struct {
	partBase
	// Reload returns the settings, read again. If Reload is nil, secrets do not change.
	Reload func() (settings.Settings, error)
	// Hangup receives a SIGHUP of the process, which makes the node read the settings
	// again at once.
	Hangup <-chan os.Signal

	holders         []secretHolder
	all             []reloadableSecret
	mu              sync.Mutex
	used            map[string]string // secret in use, by its name; nil before Start; guarded by mu
	settingsAtStart string            // the settings at the start of the node, without secrets

	lastLogged     string                 // the last problem that was logged
	currentProblem atomic.Pointer[string] // the current problem with changed settings; nil if there is none
}

// Start starts the checks for changed secrets.
func (s *secretReloader) Start(ctx context.Context) error {
	if s.Reload == nil {
		return nil
	}
	used := map[string]string{}
	for _, part := range s.holders {
		for _, secret := range part.reloadableSecrets() {
			s.all = append(s.all, secret)
			used[secret.name] = secret.valueIn(s.Settings)
		}
	}
	s.settingsAtStart = settingsWithoutSecrets(s.Settings)
	s.mu.Lock()
	s.used = used
	s.mu.Unlock()
	s.runInBackground(ctx, "secrets", s.watchSettings)
	return nil
}

// watchSettings reads the settings again every secrets_interval and after each SIGHUP, until
// ctx ends.
func (s *secretReloader) watchSettings(ctx context.Context) {
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
			s.reloadSecrets()
		case <-s.Hangup:
			s.lastLogged = "" // log a known problem again, for the operator who sent SIGHUP
			changed := s.reloadSecrets()
			s.Logger.Info("secrets were read again", "changed", strings.Join(changed, ", "))
		}
	}
}

// reloadSecrets reads the settings, puts changed secrets into use and returns their names. If a
// secret cannot be read or used, the old secret stays in use: the file may be half
// written, and the next call of reloadSecrets reads it again.
func (s *secretReloader) reloadSecrets() (changed []string) {
	now, err := s.Reload()
	if err != nil {
		s.reportProblem(fmt.Sprintf("the settings cannot be read again, so the old secrets stay in use: %v", err))
		return nil
	}
	var troubles []string
	for _, secret := range s.all {
		value := secret.valueIn(now)
		if value == s.used[secret.name] {
			continue
		}
		if err := secret.apply(now); err != nil {
			troubles = append(troubles, fmt.Sprintf("%s has changed and cannot be used, so the old value stays in use: %v", secret.name, err))
			continue
		}
		s.mu.Lock()
		s.used[secret.name] = value
		s.mu.Unlock()
		changed = append(changed, secret.name)
		s.Logger.Info("a secret has changed and is in use", "setting", secret.name)
	}
	if settingsWithoutSecrets(now) != s.settingsAtStart {
		troubles = append(troubles, "other settings have changed, and take effect only after a restart")
	}
	s.reportProblem(strings.Join(troubles, "; "))
	return changed
}

// reportProblem stores the current problem, and logs it if it differs from the last one. An
// empty text means that there is no problem.
func (s *secretReloader) reportProblem(problem string) {
	if problem == "" {
		s.currentProblem.Store(nil)
	} else {
		s.currentProblem.Store(&problem)
	}
	if problem != s.lastLogged && problem != "" {
		s.Logger.Warn("settings were read again and do not all take effect", "reason", problem)
	}
	s.lastLogged = problem
}

// sharedSecretNames lists the names of the secrets that must be equal on all nodes.
var sharedSecretNames = []string{"api_key", "http.signing_key", "cluster.key", "log.audit_webhook_secret"}

// secretFingerprints returns a short hash of each secret that must be equal on all nodes; the
// key is the secret's name. Nodes compare the hashes, so they do not show each other
// the secrets. For a setting with several secrets, the value has one hash for each, in
// order.
func (s *secretReloader) secretFingerprints() map[string]string {
	out := map[string]string{}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used == nil {
		return out
	}
	for _, name := range sharedSecretNames {
		var marks []string
		for _, key := range strings.FieldsFunc(s.used[name], func(r rune) bool { return r == '\n' || r == '\r' || r == ',' || r == ' ' }) {
			marks = append(marks, fingerprintSecret([]byte(key)))
		}
		if len(marks) > 0 {
			out[name] = strings.Join(marks, " ")
		}
	}
	if file := s.Settings.Cluster.TLSCA; file != "" {
		if text, err := os.ReadFile(file); err == nil {
			out["cluster.tls_ca"] = fingerprintSecret(text)
		}
	}
	return out
}

// fingerprintSecret returns a hash of 4 bytes. This is enough to distinguish a few secrets,
// and not enough to find out a secret of 16 random bytes.
func fingerprintSecret(secret []byte) string {
	sum := sha256.Sum256(secret)
	return hex.EncodeToString(sum[:4])
}

// settingsWithoutSecrets returns the settings as text, with all secrets redacted.
func settingsWithoutSecrets(set settings.Settings) string {
	if whole, err := filepath.Abs(set.Data); err == nil {
		set.Data = whole // openStore makes the path absolute too
	}
	var text strings.Builder
	if err := set.Print(&text); err != nil {
		return err.Error() // never happens: writes to a builder do not fail
	}
	return text.String()
}
