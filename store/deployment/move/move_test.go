package move_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/dir"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/blob/s3"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/redistest"
	"github.com/rowmill/rowmill/internal/s3test"
	"github.com/rowmill/rowmill/store/bolt"
	"github.com/rowmill/rowmill/store/deployment"
	"github.com/rowmill/rowmill/store/deployment/move"
	"github.com/rowmill/rowmill/store/redis"
	"github.com/rowmill/rowmill/store/storetest"
)

func place(records move.Records, bucket blob.Bucket, name string) move.Location {
	pair := deployment.Storage{Records: records, RecordsName: "records " + name, Bucket: bucket, BucketName: "bucket " + name, Clock: time.Now}
	return move.Location{Storage: pair, Records: records}
}

// single returns an empty directory place.
func single(t *testing.T) move.Location {
	t.Helper()
	folder := t.TempDir()
	records := must.Get(bolt.Open(t.Context(), bolt.Config{Path: folder + "/rowmill.db"}))(t)
	bucket := must.Get(dir.Open(dir.Config{Root: folder}))(t)
	t.Cleanup(func() {
		if err := errors.Join(bucket.Close(), records.Close()); err != nil {
			t.Error(err)
		}
	})
	return place(records, bucket, "single")
}

// shared returns an empty place on Redis and S3.
func shared(t *testing.T) move.Location {
	t.Helper()
	server, objects := redistest.Start(t, "appendfsync everysec"), s3test.Start(t)
	records := must.Get(redis.Open(t.Context(), redis.Config{URL: server.URL()}))(t)
	bucket := must.Get(s3.Open(t.Context(), s3.Config{
		Endpoint: objects.Endpoint, Region: s3test.Region, Bucket: objects.Bucket, Prefix: "p", AccessKey: objects.AccessKey, SecretKey: objects.SecretKey,
	}))(t)
	t.Cleanup(func() {
		if err := errors.Join(bucket.Close(), records.Close()); err != nil {
			t.Error(err)
		}
	})
	return place(records, bucket, "shared")
}

func put(t *testing.T, bucket blob.Bucket, key, text string) {
	t.Helper()
	w, err := bucket.Create(t.Context(), key, "")
	if err == nil {
		_, err = io.WriteString(w, text)
	}
	if err == nil {
		_, err = w.Commit()
	}
	must.Succeed(t, err)
}

// filled returns a directory place with records and objects of every kind.
func filled(t *testing.T) move.Location {
	t.Helper()
	p := single(t)
	storetest.FillStore(t, p.Records.(*bolt.Store), time.Now())
	for i := range 40 {
		put(t, p.Bucket, fmt.Sprintf("jobs/job-%04d/results/full-1-a.parquet", i), strings.Repeat("x", i*i))
	}
	put(t, p.Bucket, "files/file-1", "uploaded")
	put(t, p.Bucket, "uploads/upload_1/parts/1", "")
	put(t, p.Bucket, layout.ProbeKey("node"), "never moved")
	if _, _, _, err := p.AdoptIdentity(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

func quiet(string, int64) {}

// moved moves everything from one place to another.
func moved(ctx context.Context, from, to move.Location, again bool) (move.ContentSummary, error) {
	identity, err := from.ReadSourceIdentity(ctx)
	if err != nil {
		return move.ContentSummary{}, err
	}
	before, err := move.SummarizeRecords(ctx, from.Records)
	if err != nil {
		return before, err
	}
	m, err := move.Begin(ctx, to, again, quiet)
	if err == nil {
		err = m.CopyObjects(ctx, from.Bucket)
	}
	if err == nil {
		err = m.CopyRecords(ctx, from.Records)
	}
	if err != nil {
		return before, err
	}
	sum, _, err := m.End(ctx, from.Records, &before, identity)
	return sum, err
}

// objects returns all objects of a bucket that are moved, by key.
func objects(t *testing.T, bucket blob.Bucket) map[string]string {
	t.Helper()
	all := map[string]string{}
	found := must.Get(bucket.List(t.Context(), ""))(t)
	for _, info := range found {
		if info.Key == layout.Deployment || strings.HasPrefix(info.Key, layout.Probes) {
			continue
		}
		object, err := bucket.Open(t.Context(), info.Key)
		must.Succeed(t, err)
		text, err := io.ReadAll(blob.NewReader(object))
		must.Succeed(t, errors.Join(err, object.Close()))
		all[info.Key] = string(text)
	}
	return all
}

func TestThereAndBack(t *testing.T) {
	t.Parallel()
	first, second, third := filled(t), shared(t), single(t)
	there := must.Get(moved(t.Context(), first, second, false))(t)
	back := must.Get(moved(t.Context(), second, third, false))(t)
	if !maps.Equal(there.Kinds, back.Kinds) || there.Objects != 42 || back.Objects != there.Objects || back.Bytes != there.Bytes {
		t.Errorf("there %+v, back %+v", there, back)
	}
	for _, kind := range []string{"job", "usage", "key", "value", "file", "delivery", "audit"} {
		if there.Kinds[kind] == 0 {
			t.Errorf("no %s was moved", kind)
		}
	}
	want := objects(t, first.Bucket)
	for _, p := range []move.Location{second, third} {
		if diff := cmp.Diff(want, objects(t, p.Bucket)); diff != "" {
			t.Errorf("objects at %s (-want +got):\n%s", p.BucketName, diff)
		}
		id, err := p.EnsureIdentity(t.Context())
		if from, bad := first.ReadSourceIdentity(t.Context()); err != nil || bad != nil || id.ID == from.ID || id.Format != from.Format || !id.Created.Equal(from.Created) {
			t.Errorf("it is %+v, and was %+v: %v, %v", id, from, err, bad)
		}
	}
}

// A place that is not empty is never changed, with or without again.
func TestRefused(t *testing.T) {
	t.Parallel()
	from := filled(t)
	for name, fill := range map[string]func(p move.Location) error{
		"AnotherDeployment": func(p move.Location) error { _, err := p.EnsureIdentity(t.Context()); return err },
		"Records": func(p move.Location) error {
			_, err := p.Records.PutValue(t.Context(), "settings/a", json.RawMessage("1"), 0)
			return err
		},
		"Objects": func(p move.Location) error { put(t, p.Bucket, "files/a", "x"); return nil },
		"RecordsOfAnotherBesideAnUnfinishedBucket": func(p move.Location) error {
			if _, err := p.EnsureIdentity(t.Context()); err != nil {
				return err
			}
			other := single(t)
			other.Bucket = p.Bucket
			_, err := other.BeginMove(t.Context())
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			to := single(t)
			must.Succeed(t, fill(to))
			for _, again := range []bool{false, true} {
				if _, err := moved(t.Context(), from, to, again); err == nil || !strings.Contains(err.Error(), "not empty") {
					t.Errorf("again %v: %v", again, err)
				}
			}
		})
	}
	if _, err := moved(t.Context(), single(t), single(t), false); err == nil || !strings.Contains(err.Error(), "no deployment to move") {
		t.Errorf("of nothing: %v", err)
	}
}

// A faulty bucket fails to write one key, or returns other content for it.
type faulty struct {
	blob.Bucket
	fail, lie string // keys
}

var errFault = errors.New("a fault")

func (b *faulty) Create(ctx context.Context, key, contentType string) (blob.Writer, error) {
	if key == b.fail {
		return nil, errFault
	}
	return b.Bucket.Create(ctx, key, contentType)
}

func (b *faulty) Open(ctx context.Context, key string) (blob.Object, error) {
	object, err := b.Bucket.Open(ctx, key)
	if err == nil && key == b.lie {
		return &liar{object}, nil
	}
	return object, err
}

type liar struct{ blob.Object }

func (l *liar) ReadAt(p []byte, off int64) (int, error) {
	n, err := l.Object.ReadAt(p, off)
	copy(p[:n], bytes.ToUpper(p[:n]))
	return n, err
}

// An interrupted move leaves a place on which no node starts, and which another move
// can replace.
func TestUnfinished(t *testing.T) {
	t.Parallel()
	for name, bucket := range map[string]faulty{"Fails": {fail: "files/file-1"}, "Lies": {lie: "jobs/job-0007/results/full-1-a.parquet"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := filled(t), single(t)
			bad := bucket
			bad.Bucket = to.Bucket
			if _, err := moved(t.Context(), from, place(to.Records, &bad, "bad"), false); err == nil {
				t.Fatal("it went well")
			}
			var unfinished *deployment.UnfinishedMoveError
			if _, err := to.EnsureIdentity(t.Context()); !errors.As(err, &unfinished) {
				t.Errorf("a node starts there: %v", err)
			}
			if _, _, _, err := to.AdoptIdentity(t.Context()); !errors.As(err, &unfinished) {
				t.Errorf("it is adopted: %v", err)
			}
			if _, err := moved(t.Context(), to, single(t), false); !errors.As(err, &unfinished) {
				t.Errorf("it is moved: %v", err)
			}
			if _, err := moved(t.Context(), from, to, false); !errors.As(err, &unfinished) {
				t.Errorf("it is filled as if it were empty: %v", err)
			}
			put(t, to.Bucket, "jobs/job-of-before/results/x", "left")
			must.Get(moved(t.Context(), from, to, true))(t)
			if diff := cmp.Diff(objects(t, from.Bucket), objects(t, to.Bucket)); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
			if _, err := to.EnsureIdentity(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A move that is killed at any of its steps leaves a place on which no node starts, and
// the next attempt succeeds.
func TestKilledAtEachStep(t *testing.T) {
	t.Parallel()
	from := filled(t)
	ctx := t.Context()
	identity := must.Get(from.ReadSourceIdentity(ctx))(t)
	for steps := range 4 {
		to := single(t)
		m, err := move.Begin(ctx, to, false, quiet)
		if err == nil && steps > 0 {
			err = m.CopyObjects(ctx, from.Bucket)
		}
		if err == nil && steps > 1 {
			err = m.CopyRecords(ctx, from.Records)
		}
		if err == nil && steps > 2 {
			_, _, err = m.End(ctx, from.Records, nil, identity)
		}
		must.Succeed(t, err)
		var unfinished *deployment.UnfinishedMoveError
		switch _, err := to.EnsureIdentity(ctx); {
		case steps > 2 && err != nil:
			t.Errorf("after all steps: %v", err)
		case steps < 3 && !errors.As(err, &unfinished):
			t.Errorf("after step %d a node starts: %v", steps, err)
		}
		if steps > 2 {
			continue
		}
		if _, err := moved(ctx, from, to, true); err != nil {
			t.Errorf("again after step %d: %v", steps, err)
		}
	}
}

// A move fails when the records change meanwhile.
func TestRecordsChangeDuringMove(t *testing.T) {
	t.Parallel()
	from, to, ctx := filled(t), single(t), t.Context()
	identity, err := from.ReadSourceIdentity(ctx)
	must.Succeed(t, err)
	before, err := move.SummarizeRecords(ctx, from.Records)
	must.Succeed(t, err)
	m, err := move.Begin(ctx, to, false, quiet)
	if err == nil {
		err = m.CopyRecords(ctx, from.Records)
	}
	must.Succeed(t, err)
	must.Get(from.Records.PutValue(ctx, "settings/z", json.RawMessage("1"), 0))(t)
	if _, _, err := m.End(ctx, from.Records, &before, identity); err == nil || !strings.Contains(err.Error(), "records changed during the move") {
		t.Errorf("the end: %v", err)
	}
}
