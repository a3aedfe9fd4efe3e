package records_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/redistest"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/kv"
	"github.com/rowmill/rowmill/store/kv/redis"
	"github.com/rowmill/rowmill/store/records"
)

// TestRecordsUpgradedUnderARunningNode raises the layout while a node works, as a newer
// program does. From then on the node's writes have no effect, its reads work, and its
// session expires.
func TestRecordsUpgradedUnderARunningNode(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "appendfsync everysec")
	ctx := t.Context()
	connect := func() *redis.Backend {
		e := must.Get(redis.Open(ctx, redis.Config{URL: server.URL()}))(t)
		return e
	}
	s, newer := open(t, connect()), connect()
	defer s.Close()
	defer newer.Close()
	setLayout := func(layout int64) {
		t.Helper()
		must.Succeed(t, records.SetLayout(ctx, newer, layout))
	}
	rec := store.Record{
		Job:  rowmill.Job{ID: "job-1", Status: rowmill.StatusPending, RunType: rowmill.RunFull, Created: time.Unix(1e9, 0).UTC()},
		Spec: rowmill.Spec{Account: "a", Inline: []string{"row"}},
	}
	if _, _, err := s.Create(ctx, rec, nil); err != nil {
		t.Fatal(err)
	}
	session := must.Get(s.OpenSession(ctx, "node", time.Minute))(t)
	claimed := must.Get(s.Claim(ctx, rec.Job.ID, session, store.Claim{}))(t)
	f := store.Fence{JobID: rec.Job.ID, Session: session, Epoch: claimed.Epoch}
	key := store.APIKey{ID: "k", Hash: []byte("h"), Account: "a"}
	must.Succeed(t, s.PutKey(ctx, key))
	setLayout(records.Layout + 1)
	before := everything(t, newer)

	second := rec
	second.Job.ID = "job-2"
	change := func(r *store.Record) error { r.Job.Message = "changed"; return nil }
	for what, write := range map[string]func(context.Context) error{
		"Create": func(ctx context.Context) error { _, _, err := s.Create(ctx, second, nil); return err },
		"Claim": func(ctx context.Context) error {
			_, err := s.Claim(ctx, rec.Job.ID, session, store.Claim{})
			return err
		},
		"Release": func(ctx context.Context) error { return s.Release(ctx, f) },
		"Update":  func(ctx context.Context) error { _, err := s.Update(ctx, f, change); return err },
		"Cancel":  func(ctx context.Context) error { _, err := s.Cancel(ctx, rec.Job.ID, time.Now(), nil); return err },
		"CommitParts": func(ctx context.Context) error {
			return s.CommitParts(ctx, f, []store.Part{{Key: "p", Rows: 1}})
		},
		"ReplaceParts": func(ctx context.Context) error {
			return s.ReplaceParts(ctx, f, store.Part{Key: "p", Rows: 1, Complete: true})
		},
		"DropParts":    func(ctx context.Context) error { return s.DropParts(ctx, rec.Job.ID) },
		"Reserve":      func(ctx context.Context) error { _, err := s.Reserve(ctx, f, 1, nil); return err },
		"ShowRunning":  func(ctx context.Context) error { return s.MarkShownRunning(ctx, rec.Job.ID) },
		"OpenSession":  func(ctx context.Context) error { _, err := s.OpenSession(ctx, "node", time.Minute); return err },
		"RenewSession": func(ctx context.Context) error { return s.RenewSession(ctx, session) },
		"PutKey":       func(ctx context.Context) error { return s.PutKey(ctx, store.APIKey{ID: "other", Hash: []byte("h")}) },
		"ReplaceKey": func(ctx context.Context) error {
			return s.ReplaceKey(ctx, store.APIKey{ID: "k", Hash: []byte("i")}, key.Hash)
		},
		"PutValue": func(ctx context.Context) error { _, err := s.PutValue(ctx, "v", json.RawMessage(`1`), 0); return err },
		"AppendAudit": func(ctx context.Context) error {
			return s.AppendAudit(ctx, store.AuditEntry{ID: "e", At: time.Now(), Account: "a", Action: "act", Details: json.RawMessage(`{}`)})
		},
		"Ping": s.Ping,
	} {
		if err := write(ctx); !errors.Is(err, store.ErrNewer) || !errors.Is(err, rowmill.ErrUnavailable) {
			t.Errorf("%s: %v, want ErrNewer", what, err)
		}
	}
	if diff := cmp.Diff(before, everything(t, newer)); diff != "" {
		t.Errorf("the records differ (-want +got):\n%s", diff)
	}
	if _, err := s.Get(ctx, rec.Job.ID); err != nil {
		t.Errorf("get: %v", err)
	}
	if err := s.Export(ctx, func(store.ExportEntry) error { return nil }); !errors.Is(err, store.ErrNewer) {
		t.Errorf("export: %v, want ErrNewer", err)
	}
	if _, err := records.Open(ctx, newer, nil); err == nil || !strings.Contains(err.Error(), "start the version that wrote them") {
		t.Errorf("open an upgraded store: %v", err)
	}

	setLayout(records.Layout) // the upgrade is undone
	if err := s.RenewSession(ctx, session); err != nil {
		t.Errorf("renew after the upgrade was taken back: %v", err)
	}
}

// everything returns the content of all tables as text.
func everything(t *testing.T, backend kv.Backend) string {
	t.Helper()
	var all strings.Builder
	must.Succeed(t, backend.View(t.Context(), func(tx kv.Tx) error {
		all.Reset()
		for _, table := range records.Tables {
			for e, err := range tx.Scan(kv.Range{Table: table}) {
				if err != nil {
					return err
				}
				fmt.Fprintf(&all, "%s %q %q\n", table, e.Key, e.Value)
			}
		}
		return nil
	}))
	return all.String()
}
