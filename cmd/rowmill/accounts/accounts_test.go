package accounts

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	nethttp "net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/rowmill/rowmill/blob/dir"
	"github.com/rowmill/rowmill/catalog"
	"github.com/rowmill/rowmill/cmd/rowmill/connect"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
	"github.com/rowmill/rowmill/http"
	"github.com/rowmill/rowmill/store/bolt"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// idle is a pipeline that runs nothing.
type idle struct{ http.Fleet }

func (idle) Submitted(string)                    {}
func (idle) Cancelled(string)                    {}
func (idle) Checks(context.Context) []http.Check { return nil }
func (idle) Draining() bool                      { return false }

// A program is the commands beside a service without a pipeline.
type program struct {
	testing.TB
	server   *httptest.Server
	asked    int // requests
	key      string
	out, err bytes.Buffer
}

func start(t testing.TB) *program {
	t.Helper()
	p := &program{TB: t, key: "administrator"}
	records, err := bolt.Open(t.Context(), bolt.Config{Path: filepath.Join(t.TempDir(), "records.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = records.Close() })
	bucket, err := dir.Open(dir.Config{Root: t.TempDir(), NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bucket.Close() })
	api, err := http.New(http.Config{Store: records, Bucket: bucket, Catalog: catalog.Default(), Service: idle{}, AdminKey: p.key})
	if err != nil {
		t.Fatal(err)
	}
	p.server = httptest.NewServer(nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
		p.asked++
		api.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(p.server.Close)
	return p
}

// run runs a command line, such as "keys list".
func (p *program) run(line string) *program {
	p.Helper()
	p.out.Reset()
	p.err.Reset()
	service := connect.Options{Term: &terminal.IO{
		In: strings.NewReader(""), Out: &p.out, Err: &p.err,
		Environ: []string{"ROWMILL_SERVER=" + p.server.URL, "ROWMILL_API_KEY=" + p.key},
		Width:   func() int { return 80 },
	}}
	root := &cobra.Command{Use: "rowmill", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(Keys(service), Settings(service))
	root.SetArgs(strings.Fields(line))
	root.SetOut(&p.out)
	root.SetErr(&p.err)
	err := root.ExecuteContext(p.Context())
	if err != nil {
		fmt.Fprintln(&p.err, err)
	}
	fmt.Fprintf(&p.err, "exit code %d\n", exit.Code(err))
	return p
}

// want checks the exit code and that both streams together hold each text.
func (p *program) want(code int, texts ...string) *program {
	p.Helper()
	both := p.out.String() + p.err.String()
	for _, text := range append(texts, fmt.Sprintf("exit code %d\n", code)) {
		if !strings.Contains(both, text) {
			p.Errorf("lacks %q:\n%s", text, both)
		}
	}
	return p
}

// made is the key that a command has just printed.
func (p *program) made() (id, key string) {
	p.Helper()
	p.want(0)
	text := p.out.String()
	found := regexp.MustCompile(`^rk_([0-9a-f]{12})_[A-Za-z0-9_-]{43}\n$`).FindStringSubmatch(text)
	if found == nil {
		p.Fatalf("standard output is no key alone: %q\n%s", text, p.err.String())
	}
	return found[1], strings.TrimSpace(text)
}

func TestKeysLife(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.run("keys list").want(0, "ID")
	id, first := p.run("keys create --account acme --role admin --name nightly --expires 90d --requests-per-minute 5000").made()
	p.want(0, "created admin key "+id+" of account acme; it expires at 20", "not shown again")
	if strings.Contains(p.err.String(), first) {
		t.Error("the key is said beside standard output")
	}
	p.run("keys list").want(0, id, "acme", "admin", "nightly", "5,000")

	operator := p.key
	p.key = first
	own, _ := p.run("keys create").made()
	p.want(0, "created user key "+own+" of account acme; it does not expire")
	_, second := p.run("keys rotate " + id).made()
	p.run("keys list").want(4, "unknown, revoked or expired")
	p.key = second
	p.run("keys list").want(0, id, own)
	p.run("keys list --account other").want(4, "another account")
	p.run("keys revoke "+own+" 000000000000").want(5, "key "+own+" is revoked", "000000000000")
	p.key = operator
	p.run("keys list -o json").want(0)
	var doc struct{ Keys []map[string]any }
	if err := json.Unmarshal(p.out.Bytes(), &doc); err != nil || len(doc.Keys) != 1 || doc.Keys[0]["id"] != id || doc.Keys[0]["last_used_at"] == nil {
		t.Errorf("listed %s, %v", p.out.String(), err)
	}
	p.run("keys create -o json --dialect sdk").want(0, `"dialect": "sdk"`, `"key": "rk_`)
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
		p.run(line).want(2, want)
	}
	if p.asked != 0 {
		t.Errorf("%d requests were sent", p.asked)
	}
	p.run("keys create --role root").want(1, "admin or user")
	p.run("keys create --expires 2020-01-31").want(1, "in the future")
	p.run("settings set --retention-days 5").want(1, "1, 7, 30 and 90")
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
		at, err := expiry(text, now)
		if err != nil || at.Format(time.RFC3339Nano) != want {
			t.Errorf("%s is %v, %v; want %s", text, at, err, want)
		}
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.run("settings get").want(0, "account default", "90 days after the job's end")
	p.run("settings set --retention-days 7 --account acme").want(0, "account acme", "7 days")
	p.run("settings set --retention-days never").want(0, "account default", "for ever")
	p.run("settings get -o json").want(0, `"retention_days": null`)
	p.run("settings get --account acme").want(0, "7 days")
}
