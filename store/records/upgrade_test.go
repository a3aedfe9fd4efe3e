package records_test

import (
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
	"github.com/rowmill/rowmill/store/storetest"
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
		Job:  rowmill.Job{ID: "job-1", Status: rowmill.StatusPending, RunType: rowmill.RunFull, JobTimes: rowmill.JobTimes{Created: time.Unix(1e9, 0).UTC()}},
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

	c := &storetest.Caller{Store: s, Fence: f, Ctx: ctx}
	for _, o := range append(storetest.Operations("Finish"), storetest.Operations("Cancel")...) {
		switch {
		case o.Kind == storetest.Reads && o.Method != "Ping", o.Method == "CloseSession":
			continue
		case o.Method == "DropExpiredDeliveries": // no delivery has expired
			continue
		}
		if err := o.Call(c); !errors.Is(err, store.ErrNewer) || !errors.Is(err, rowmill.ErrUnavailable) {
			t.Errorf("%s: %v, want ErrNewer", o.Method, err)
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
