package redis_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/redistest"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/redis"
	"github.com/rowmill/rowmill/store/storetest"
)

// A job that has ended, with 300 inline rows of 200 bytes, takes at most 8 KiB in all
// keys, however it ended.
func TestFinishedJobsTakeLittleMemory(t *testing.T) {
	t.Parallel()
	const jobs, most = 30, 8 << 10
	for _, status := range []rowmill.Status{rowmill.StatusSucceeded, rowmill.StatusFailed, rowmill.StatusCancelled} {
		server := redistest.Start(t, "appendonly no")
		s := open(t, redis.Config{URL: server.URL(), Prefix: string(status) + ":"})
		session := newSession(t, s)
		rows := make([]string, 300)
		for i := range rows {
			rows[i] = strings.Repeat("x", 200)
		}
		before := memory(t, server)
		for i := range jobs {
			id := fmt.Sprintf("job-%036d", i)
			endWith(t, s, claimed(t, s, id, session, rows...), status)
		}
		if each := (memory(t, server) - before) / jobs; each > most {
			t.Errorf("a %s job takes %d bytes, more than %d", status, each, most)
		} else {
			t.Logf("a %s job takes %d bytes", status, each)
		}
	}
}

// The usage of a model by a key on a day takes at most 700 bytes. A hundred keys
// that use three models each day take 77 MB a year. A day without usage takes nothing.
func TestUsageByKeyTakesLittleMemory(t *testing.T) {
	t.Parallel()
	const keys, models, most = 100, 3, 700
	server := redistest.Start(t, "appendonly no")
	s := open(t, redis.Config{URL: server.URL()})
	session := newSession(t, s)
	all := store.RowTotals{Rows: 1e6, Failed: 1e3, TruncatedRows: 1e3, TruncatedOutputs: 1e3, InputTokens: 1e9, OutputTokens: 1e9}
	for i := range keys * models {
		rec := storetest.NewRecord(fmt.Sprintf("job-%036d", i), "a", "row")
		key := fmt.Sprintf("%012x", i/models)
		rec.Job.KeyID, rec.Spec.Model.ID = &key, fmt.Sprint("meta-llama/Llama-3.1-8B-Instruct-", i%models)
		if _, _, err := s.Create(t.Context(), rec, nil); err != nil {
			t.Fatal(err)
		}
		c, err := s.Claim(t.Context(), rec.Job.ID, session, store.Claim{})
		if err == nil {
			f := store.Fence{JobID: rec.Job.ID, Session: session, Epoch: c.Epoch}
			err = s.CommitParts(t.Context(), f, []store.Part{{Key: "p", Rows: all.Rows, Totals: all}})
		}
		must.Succeed(t, err)
	}
	sum := 0
	for _, hash := range strings.Fields(command(t, server, "KEYS", "*:keyusage")) {
		n := must.Get(strconv.Atoi(strings.TrimSpace(command(t, server, "MEMORY", "USAGE", hash, "SAMPLES", "0"))))(t)
		sum += n
	}
	if each := sum / (keys * models); each > most || sum == 0 {
		t.Errorf("usage by key takes %d bytes for each key and model, more than %d", each, most)
	} else {
		t.Logf("usage by key takes %d bytes for each key and model", each)
	}
}

// endWith ends a job, and cleans up like its owner.
func endWith(t *testing.T, s *redis.Store, f store.Fence, status rowmill.Status) {
	t.Helper()
	part := store.Part{Key: "jobs/" + f.JobID + "/parts/000000-1-0123456789ab.parquet", Rows: 300, Complete: true, Totals: of(300)}
	err := s.CommitParts(t.Context(), f, []store.Part{part})
	if err == nil && status == rowmill.StatusCancelled {
		_, err = s.Cancel(t.Context(), f.JobID, time.Now(), nil)
	} else if err == nil {
		_, err = s.Finish(t.Context(), f, func(r *store.Record) error {
			n := int64(300)
			r.Job.NumRows = &n
			r.Artifacts = map[string]store.Artifact{"full": {Key: part.Key, Size: 1}, "rows": {Key: part.Key, Size: 1}}
			for _, next := range []rowmill.Status{rowmill.StatusStarting, rowmill.StatusRunning, status} {
				if err := r.Job.Become(next, time.Now()); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err == nil && status == rowmill.StatusSucceeded {
		if err = s.DropParts(t.Context(), f.JobID); err == nil {
			err = s.MarkInputRemoved(t.Context(), f.JobID, time.Now())
		}
	} else if err == nil {
		err = s.KeepInput(t.Context(), f.JobID, time.Now().Add(time.Hour))
	}
	must.Succeed(t, err)
}

// memory returns the size of all keys in bytes.
func memory(t *testing.T, server *redistest.Server) (sum int) {
	t.Helper()
	for _, key := range strings.Fields(command(t, server, "KEYS", "*")) {
		n := must.Get(strconv.Atoi(strings.TrimSpace(command(t, server, "MEMORY", "USAGE", key, "SAMPLES", "0"))))(t)
		sum += n
	}
	return sum
}
