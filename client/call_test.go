package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
)

// The generated calls send zero values only where these differ from absent ones, and
// escape parameters in paths.
func TestCalls_Requests(t *testing.T) {
	t.Parallel()
	for want, send := range map[string]func(context.Context, *Client) error{
		`GET /v1/actors `: func(ctx context.Context, c *Client) error {
			_, _, err := c.ListActors(ctx, ListActorsParams{})
			return err
		},
		`GET /v1/actors?kind=job&min_age=60 `: func(ctx context.Context, c *Client) error {
			_, _, err := c.ListActors(ctx, ListActorsParams{Kind: "job", MinAge: 60})
			return err
		},
		`GET /v1/jobs/a%2Fb%3F/rows/0 `: func(ctx context.Context, c *Client) error {
			_, _, err := c.GetRow(ctx, "a/b?", 0)
			return err
		},
		`POST /v1/jobs/j/resume {}`: func(ctx context.Context, c *Client) error {
			_, _, err := c.ResumeJob(ctx, "j", ResumeJobParams{}, Resumption{})
			return err
		},
		`POST /v1/jobs/j/resume {"job_priority":0,"rows":"failed"}`: func(ctx context.Context, c *Client) error {
			_, _, err := c.ResumeJob(ctx, "j", ResumeJobParams{}, Resumption{Rows: "failed", JobPriority: new(rowmill.Prototyping)})
			return err
		},
		`PATCH /v1/settings?account=acme {"retention_days":null}`: func(ctx context.Context, c *Client) error {
			_, _, err := c.PatchSettings(ctx, PatchSettingsParams{Account: "acme"}, SettingsChange{})
			return err
		},
		`PATCH /v1/webhooks/w {"disabled":false,"events":[]}`: func(ctx context.Context, c *Client) error {
			_, _, err := c.PatchWebhook(ctx, "w", "", WebhookChange{Disabled: new(false), Events: &[]string{}})
			return err
		},
		`POST /v1/keys {"role":"user"}`: func(ctx context.Context, c *Client) error {
			_, _, err := c.CreateKey(ctx, "", NewKey{Role: "user"})
			return err
		},
		`POST /v1/functions/f/run {"input":{"a":1}}`: func(ctx context.Context, c *Client) error {
			_, _, err := c.RunFunction(ctx, "f", RunInput{Input: json.RawMessage(`{"a":1}`)})
			return err
		},
	} {
		c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if diff := cmp.Diff(want, r.Method+" "+r.URL.RequestURI()+" "+string(body)); err != nil || diff != "" {
				t.Errorf("error %v (-want +got):\n%s", err, diff)
			}
			if json := r.Header.Get("Content-Type") == "application/json"; json != (len(body) > 0) {
				t.Errorf("%s: Content-Type %q", want, r.Header.Get("Content-Type"))
			}
			_, _ = io.WriteString(w, "{}")
		})
		if err := send(t.Context(), c); err != nil {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// Calls for which the service works longer have a longer timeout, or none.
func TestCalls_Timeouts(t *testing.T) {
	t.Parallel()
	const patience = 3 * time.Hour // of the caller
	for name, test := range map[string]struct {
		send func(context.Context, *Client) error
		want time.Duration
	}{
		"ListNodes": {func(ctx context.Context, c *Client) error { _, _, err := c.ListNodes(ctx); return err }, time.Minute},
		"RunFunction": {func(ctx context.Context, c *Client) error {
			_, _, err := c.RunFunction(ctx, "f", RunInput{})
			return err
		}, runTimeout},
		"BeginUpload": {func(ctx context.Context, c *Client) error {
			_, _, err := c.BeginUpload(ctx, NewUpload{})
			return err
		}, patience},
		"CompleteUpload": {func(ctx context.Context, c *Client) error {
			_, _, err := c.CompleteUpload(ctx, "u", CompletedUpload{})
			return err
		}, patience},
		"GetResultsURL": {func(ctx context.Context, c *Client) error {
			_, _, err := c.GetResultsURL(ctx, "j", GetResultsURLParams{})
			return err
		}, patience},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := must.Get(New(Config{Server: "http://silent.example"}))(t)
				c.http.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
					<-r.Context().Done()
					return nil, r.Context().Err()
				})
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				start := time.Now()
				if err := test.send(ctx, c); err == nil || time.Since(start) != test.want {
					t.Errorf("after %v: %v, want an end after %v", time.Since(start), err, test.want)
				}
			})
		})
	}
}
