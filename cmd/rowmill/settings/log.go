package settings

import (
	"encoding/base64"
	"fmt"
	"log/slog"
	"slices"
	"strings"
)

// Log is what the node tells its operator, on standard error.
type Log struct {
	// Level is debug, info, warn or error. Default: info.
	Level string `yaml:"level" default:"info"`
	// Format is text, json or auto. Default: auto, text on a terminal and
	// json off it.
	Format string `yaml:"format" default:"auto"`
	// Audit is a file that gets each entry of the audit record that this node
	// makes, a JSON object a line, before the act is begun. Default: none; the
	// records have all entries.
	Audit string `yaml:"audit"`
	// AuditWebhook is a URL that each entry of the audit record is sent to, of all
	// nodes, in their order and until it is taken. Default: none.
	AuditWebhook string `yaml:"audit_webhook"`
	// AuditWebhookSecret signs what is sent there: whsec_ and 24 to 64 bytes in base64.
	// Several, each on a line of its own, all sign, so that it can be changed. Default:
	// none; required beside the URL.
	AuditWebhookSecret Secret `yaml:"audit_webhook_secret"`
}

// AuditSecrets are the secrets that sign what is sent of the audit record.
func (l Log) AuditSecrets() ([]string, error) {
	secrets := keyFields(l.AuditWebhookSecret)
	for i, secret := range secrets {
		text, found := strings.CutPrefix(secret, "whsec_")
		// The error of the decoder would show a part of the secret.
		if key, err := base64.StdEncoding.DecodeString(text); err != nil || !found || len(key) < 24 || len(key) > 64 {
			return nil, fmt.Errorf("secret %d of %d must be whsec_ and 24 to 64 bytes in base64; `echo whsec_$(openssl rand -base64 32)` makes one", i+1, len(secrets))
		}
	}
	return secrets, nil
}

// Validate returns every broken rule.
func (l Log) Validate() error { return broken(l.check) }

func (l Log) check(check checker) {
	check(new(slog.Level).UnmarshalText([]byte(l.Level)) == nil, "log.level", "must be debug, info, warn or error, is %q", l.Level)
	check(slices.Contains([]string{"auto", "text", "json"}, l.Format), "log.format", "must be auto, text or json, is %q", l.Format)
	check(l.AuditWebhook == "" || isBaseURL(l.AuditWebhook), "log.audit_webhook", "must be an http or https URL without query, is %q", l.AuditWebhook)
	secrets, err := l.AuditSecrets()
	check(err == nil, "log.audit_webhook_secret", "%v", err)
	check(err != nil || (l.AuditWebhook == "") == (len(secrets) == 0), "log.audit_webhook", "needs log.audit_webhook_secret beside it, and the reverse")
}
