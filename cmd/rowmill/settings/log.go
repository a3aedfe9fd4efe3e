package settings

import (
	"encoding/base64"
	"fmt"
	"log/slog"
	"slices"
	"strings"
)

// Log configures the log on standard error, and where the node sends audit entries.
type Log struct {
	// Level is debug, info, warn or error. Default: info.
	Level string `yaml:"level" default:"info"`
	// Format is text, json or auto. Default: auto, which means text on a terminal and
	// json elsewhere.
	Format string `yaml:"format" default:"auto"`
	// Audit is a file to which this node appends each of its audit entries, one JSON
	// object per line, before the audited action starts. Default: none; the records
	// always hold all audit entries.
	Audit string `yaml:"audit"`
	// AuditWebhook is a URL to which the nodes send all audit entries, in order. An
	// entry is sent again until the receiver accepts it. Default: none.
	AuditWebhook string `yaml:"audit_webhook"`
	// AuditWebhookSecret signs the audit entries that are sent to AuditWebhook: whsec_
	// and 24 to 64 bytes in base64. With several secrets, one per line, each of them
	// signs, so that a secret can be changed. Default: none; required with
	// AuditWebhook.
	AuditWebhookSecret Secret `yaml:"audit_webhook_secret"`
}

// AuditSecrets returns the secrets that sign the audit entries.
func (l Log) AuditSecrets() ([]string, error) {
	secrets := splitKeys(l.AuditWebhookSecret)
	for i, secret := range secrets {
		text, found := strings.CutPrefix(secret, "whsec_")
		// Do not show the decoder's error: it contains a part of the secret.
		if key, err := base64.StdEncoding.DecodeString(text); err != nil || !found || len(key) < 24 || len(key) > 64 {
			return nil, fmt.Errorf("secret %d of %d must be whsec_ and 24 to 64 bytes in base64; `echo whsec_$(openssl rand -base64 32)` makes one", i+1, len(secrets))
		}
	}
	return secrets, nil
}

// Validate returns an error for each invalid setting of the log.
func (l Log) Validate() error { return runChecks(l.check) }

func (l Log) check(require requireFunc) {
	require(new(slog.Level).UnmarshalText([]byte(l.Level)) == nil, "log.level", "must be debug, info, warn or error, is %q", l.Level)
	require(slices.Contains([]string{"auto", "text", "json"}, l.Format), "log.format", "must be auto, text or json, is %q", l.Format)
	require(l.AuditWebhook == "" || isBaseURL(l.AuditWebhook), "log.audit_webhook", "must be an http or https URL without query, is %q", l.AuditWebhook)
	secrets, err := l.AuditSecrets()
	require(err == nil, "log.audit_webhook_secret", "%v", err)
	require(err != nil || (l.AuditWebhook == "") == (len(secrets) == 0), "log.audit_webhook", "must be set together with log.audit_webhook_secret: set both or neither")
}
