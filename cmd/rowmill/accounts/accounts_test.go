package accounts

import (
	"encoding/json"
	nethttp "net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/cmd/rowmill/connect"
	"github.com/rowmill/rowmill/internal/clitest"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A program is the commands with a service.
type program struct {
	*clitest.Program
	asked int  // requests
	old   bool // the service does not offer previews
}

func start(t testing.TB) *program {
	t.Helper()
	p := &program{}
	p.Program = clitest.Start(t, clitest.Config{
		Commands: func(service connect.Options) []*cobra.Command {
			return []*cobra.Command{Keys(service), Settings(service), Webhooks(service)}
		},
		Wrap: func(api nethttp.Handler) nethttp.Handler {
			return nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
				p.asked++
				if p.old {
					r.URL.Path = strings.Replace(r.URL.Path, "/settings/preview", "/unknown", 1)
				}
				api.ServeHTTP(w, r)
			})
		},
	})
	return p
}

// made returns the key that a command prints.
func (p *program) made(line string) (id, key string) {
	p.Helper()
	p.Run(line).WantOutput(0)
	text := p.Out.String()
	found := regexp.MustCompile(`^rk_([0-9a-f]{12})_[A-Za-z0-9_-]{43}\n$`).FindStringSubmatch(text)
	if found == nil {
		p.Fatalf("standard output is no key alone: %q\n%s", text, p.Err.String())
	}
	return found[1], strings.TrimSpace(text)
}

func TestKeysLife(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.Run("keys list").WantOutput(0, "ID")
	id, first := p.made("keys create --account acme --role admin --name nightly --expires 90d --requests-per-minute 5000")
	p.WantOutput(0, "created admin key "+id+" of account acme; it expires at 20", "cannot be shown again")
	if strings.Contains(p.Err.String(), first) {
		t.Error("the key is said beside standard output")
	}
	p.Run("keys list").WantOutput(0, id, "acme", "admin", "nightly", "5,000")

	operator := p.Key
	p.Key = first
	own, _ := p.made("keys create")
	p.WantOutput(0, "created user key "+own+" of account acme; it does not expire")
	_, second := p.made("keys rotate " + id)
	p.Run("keys list").WantOutput(4, "unknown, revoked or expired")
	p.Key = second
	p.Run("keys list").WantOutput(0, id, own)
	p.Run("keys list --account other").WantOutput(4, "another account")
	p.Run("keys revoke "+own+" 000000000000").WantOutput(5, "key "+own+" is revoked", "000000000000")
	p.Key = operator
	p.Run("keys list -o json").WantOutput(0)
	var doc struct{ Keys []map[string]any }
	if err := json.Unmarshal(p.Out.Bytes(), &doc); err != nil || len(doc.Keys) != 1 || doc.Keys[0]["id"] != id || doc.Keys[0]["last_used_at"] == nil {
		t.Errorf("listed %s, %v", p.Out.String(), err)
	}
	p.Run("keys create -o json --dialect sdk").WantOutput(0, `"dialect": "sdk"`, `"key": "rk_`)
}

func TestKeysRefusals(t *testing.T) {
	t.Parallel()
	p := start(t)
	for line, want := range map[string]string{
		"keys create --expires soon":          "days from now such as 90d",
		"keys create --expires 0d":            "days from now such as 90d",
		"keys create --requests-per-minute 0": "at least 1",
		"keys list -o yaml":                   "-o must be table or json",
		"settings set":                        "nothing to change",
		"settings set --retention-days long":  "1, 7, 30, 90 or never",
		"settings get -o yaml":                "-o must be table or json",
	} {
		p.Run(line).WantOutput(2, want)
	}
	if p.asked != 0 {
		t.Errorf("%d requests were sent", p.asked)
	}
	p.Run("keys create --role root").WantOutput(1, "admin, user or reader")
	p.Run("keys create --expires 2020-01-31").WantOutput(1, "in the future")
	p.Run("settings set --retention-days 5").WantOutput(1, "1, 7, 30 and 90")
}

func TestExpiry(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC)
	for text, want := range map[string]string{
		"1d":                        "2026-03-02T12:00:00Z",
		"90d":                       "2026-05-30T12:00:00Z",
		"2030-01-31":                "2030-01-31T00:00:00Z",
		"2030-01-31T18:00:00+02:00": "2030-01-31T16:00:00Z",
	} {
		at, err := parseExpiry(text, now)
		if err != nil || at.Format(time.RFC3339Nano) != want {
			t.Errorf("%s is %v, %v; want %s", text, at, err, want)
		}
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.Run("settings get").WantOutput(0, "account default", "90 days after the job's end")
	p.Run("settings set --retention-days 7 --account acme").WantOutput(0, "account acme", "7 days")
	p.Run("settings set --retention-days never").WantOutput(0, "account default", "for ever")
	p.Run("settings get -o json").WantOutput(0, `"retention_days": null`)
	p.Run("settings get --account acme").WantOutput(0, "7 days")
	p.Run("settings preview").WantOutput(0, "JOBS TO REMOVE", "90 days", "for ever")
	p.Run("settings preview -o json").WantOutput(0, `"looked_at_all": true`)
}

func TestSettingsSayWhatGoes(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.Now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	id := rowmill.NewJobID()
	rec := store.Record{SchemaVersion: store.SchemaVersion, Job: rowmill.Job{ID: id, Status: rowmill.StatusPending, JobTimes: rowmill.JobTimes{Created: p.Now}}, Spec: rowmill.Spec{Account: "default"}}
	if _, _, err := p.Store.Create(t.Context(), rec, nil); err != nil {
		t.Fatal(err)
	}
	must.Get(p.Store.Cancel(t.Context(), id, p.Now, func(*store.Record) {}))(t)
	p.Now = p.Now.AddDate(0, 0, 2)
	p.Run("settings preview").WantOutput(0, "2026-03-01T12:00:00Z", "2026-03-08T12:00:00Z")
	if p.Run("settings set --retention-days 7").WantOutput(0); strings.Contains(p.Err.String(), "will go") {
		t.Errorf("it says %q", p.Err.String())
	}
	p.Run("settings set --retention-days 1").WantOutput(0, "the data of 1 jobs will be removed within minutes; the oldest ended at 2026-03-01T12:00:00Z")
}
