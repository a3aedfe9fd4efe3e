package accounts

import (
	"regexp"
	"strings"
	"testing"
)

func TestWebhooksLife(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.Run("webhooks add https://example.com/hook --event batch.completed --event job.failed --account acme").WantOutput(0, "of account acme", "cannot be shown again")
	secret := strings.TrimSpace(p.Out.String())
	if !strings.HasPrefix(secret, "whsec_") || strings.Contains(p.Err.String(), secret) {
		t.Errorf("standard output is no secret alone: %q\n%s", secret, p.Err.String())
	}
	id := regexp.MustCompile(`we_[0-9a-f]{32}`).FindString(p.Err.String())
	p.Run("webhooks list --account acme").WantOutput(0, id, "https://example.com/hook", "batch.completed job.failed", "enabled", secret[:10])
	if strings.Contains(p.Out.String(), secret) {
		t.Error("the list shows the secret")
	}
	p.Run("webhooks list").WantOutput(0, "ID")
	p.Run("webhooks rotate "+id+" --account acme").WantOutput(0, "also signs")
	if strings.TrimSpace(p.Out.String()) == secret {
		t.Error("the secret is the same")
	}
	p.Run("webhooks test "+id+" --account acme").WantOutput(1, "batch.completed", "no", "did not accept the event") // the service sends nothing
	p.Run("webhooks deliveries "+id+" --account acme").WantOutput(0, "STATE")
	p.Run("webhooks remove "+id).WantOutput(5, id)
	p.Run("webhooks remove "+id+" --account acme").WantOutput(0, "is removed")
	p.Run("webhooks add ftp://example.com").WantOutput(1, "url", "https://")
	p.Run("webhooks add https://example.com --event x").WantOutput(1, "job.succeeded")
}
