package http

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
)

// brokenStore is a store in which Create fails.
type brokenStore struct {
	store.Store
	after bool  // the record is stored, and then Create fails
	err   error // of Create
	blind error // error of Get; nil: Get works
}

func (b brokenStore) Create(ctx context.Context, r store.Record, idem *store.Idempotency) (store.Record, bool, error) {
	if b.after {
		if _, _, err := b.Store.Create(ctx, r, idem); err != nil {
			return store.Record{}, false, err
		}
	}
	return store.Record{}, false, fmt.Errorf("commit: %w", b.err)
}

func (b brokenStore) Get(ctx context.Context, jobID string) (store.Record, error) {
	if b.blind != nil {
		return store.Record{}, b.blind
	}
	return b.Store.Get(ctx, jobID)
}

var (
	errAway    = fmt.Errorf("%w: 10.0.0.5 cannot be reached", rowmill.ErrUnavailable)
	errUnknown = fmt.Errorf("%w: %w", store.ErrOutcomeUnknown, errAway)
)

func TestSubmit_RowsOfAJobThatWasNotStoredAreRemoved(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		after bool
		err   error
		blind error
		kept  bool
		mark  bool // the mark of the rows stays, so that retention can remove them
	}{
		{err: syscall.ENOSPC},
		{err: syscall.ENOSPC, after: true, kept: true}, // the record exists, so its rows must stay
		{err: errAway, blind: errAway},                 // certainly not stored, so the store need not be read
		{err: errUnknown, kept: true, mark: true},      // the record may still appear
		{err: errUnknown, blind: errAway, kept: true, mark: true},
		{err: errUnknown, after: true, kept: true},
	} {
		w := setup(t, func(c *Config) {
			c.Store, c.MaxInlineBytes = brokenStore{Store: c.Store, after: test.after, err: test.err, blind: test.blind}, 10
		})
		w.post(`{"inputs":["a row that is spooled"]}`)
		objects, err := w.bucket.List(t.Context(), layout.Jobs)
		marks, markErr := w.bucket.List(t.Context(), layout.Spoolings)
		must.Succeed(t, errors.Join(err, markErr))
		if kept, mark := len(objects) == 1, len(marks) == 1; kept != test.kept || mark != test.mark {
			t.Errorf("%+v: objects %v, marks %v", test, objects, marks)
		}
	}
}

func TestSubmit_StoreAway(t *testing.T) {
	t.Parallel()
	const body = `{"inputs":["a"]}`
	for name, test := range map[string]struct {
		store   brokenStore
		headers []string
		status  int
		code    string
		says    string
	}{
		"away":                   {store: brokenStore{err: errAway, blind: errAway}, status: 503, code: "unavailable", says: "try again in a few seconds"},
		"full":                   {store: brokenStore{err: syscall.ENOSPC}, status: 507, code: "storage_full"},
		"unknown":                {store: brokenStore{err: errUnknown, blind: errAway}, status: 503, code: "outcome_unknown", says: "look for the job in GET /v1/list-jobs"},
		"unknown and not found":  {store: brokenStore{err: errUnknown}, status: 503, code: "outcome_unknown", says: "may have been created or not"},
		"unknown with a key":     {store: brokenStore{err: errUnknown}, headers: []string{"Idempotency-Key", "k"}, status: 503, code: "outcome_unknown", says: "creates no second job"},
		"unknown and then found": {store: brokenStore{err: errUnknown, after: true}, status: 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t, func(c *Config) { test.store.Store = c.Store; c.Store = test.store })
			answer := w.post(body, test.headers...)
			if test.status == 200 {
				id := answer.want(200).json()["results"].(string)
				w.get("/v1/jobs/" + id).want(200)
				return
			}
			answer.wantError(test.status, test.code, test.says)
			if after := answer.header.Get("Retry-After"); test.status == 503 && after != request.RetryAfter {
				t.Errorf("Retry-After is %q", after)
			}
			if text := string(answer.text); strings.Contains(text, "10.0.0.5") {
				t.Errorf("the answer shows where the store is: %s", text)
			}
			if test.status == 503 && !strings.Contains(w.logs.String(), "10.0.0.5 cannot be reached") {
				t.Errorf("the log lacks the reason: %s", w.logs)
			}
		})
	}
}

func TestBucketAway_503(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.MaxInlineBytes = 10 })
	w.bucket.fail = errAway
	w.post(`{"inputs":["a row that is spooled"]}`).wantError(503, "unavailable", "nothing is known to be wrong with your request")
}

// slowStore answers Ping only when its context ends.
type slowStore struct{ store.Store }

func (slowStore) Ping(ctx context.Context) error {
	<-ctx.Done()
	return fmt.Errorf("%w: %w", rowmill.ErrUnavailable, ctx.Err())
}

// slowChecks needs all the time of its context.
type slowChecks struct{ *fakeService }

func (slowChecks) Checks(ctx context.Context) []ReadinessCheck {
	<-ctx.Done()
	return []ReadinessCheck{{Name: "objects", OK: true, Text: "cannot be reached"}}
}

func TestReadyz_AnswersInTimeWhileChecksHang(t *testing.T) {
	t.Parallel()
	w := setup(t)
	synctest.Test(t, func(t *testing.T) {
		config := w.Config
		config.Store, config.Service, config.Registerer = slowStore{w.store}, slowChecks{w.service}, nil
		s, err := New(config)
		must.Succeed(t, err)
		began, answer := time.Now(), httptest.NewRecorder()
		s.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/readyz?verbose", nil))
		if took := time.Since(began); took > readyTimeout {
			t.Errorf("it took %v", took)
		}
		if text := answer.Body.String(); answer.Code != 503 || !strings.Contains(text, "[-] store\n") || !strings.Contains(text, "[+] objects") {
			t.Errorf("%d %s", answer.Code, text)
		}
	})
}
