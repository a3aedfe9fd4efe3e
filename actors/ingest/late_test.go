package ingest

import (
	"errors"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

// A shard that a node wrote late, cut with other settings, is not used in place of the
// manifest's shard.
func TestOpenShard_OfAnotherCut(t *testing.T) {
	t.Parallel()
	r := setup(t)
	rec, fence := r.job(t, rowmill.Spec{Spooled: r.put(t, "spooled/rows", "\"a\"\n\"b\"\n\"c\"\n\"d\"\n")})
	r.ShardRows = 2
	m := r.runs(t, rec, fence)
	open := func(n int) error {
		in, err := archive.OpenShard(t.Context(), r.Bucket, rec.Job.ID, &rec.Spec, n, m.Shards[n])
		if err == nil {
			in.Close()
		}
		return err
	}
	must.Succeed(t, errors.Join(open(0), open(1)))
	must.Succeed(t, r.Bucket.Copy(t.Context(), layout.ShardKey(rec.Job.ID, 0), layout.ShardKey(rec.Job.ID, 1))) // a late write
	if err := open(1); !errors.Is(err, shard.ErrCorrupt) {
		t.Errorf("rows of another place: %v, want ErrCorrupt", err)
	}
	m.Shards[0].Rows = 3 // this manifest has larger shards
	if err := open(0); !errors.Is(err, shard.ErrCorrupt) {
		t.Errorf("fewer rows than the manifest has: %v, want ErrCorrupt", err)
	}
	m.Shards[0].Rows = 1 // the first rows of a sample
	if err := open(0); err != nil {
		t.Errorf("the same rows and more: %v", err)
	}
}

// A manifest that a node wrote late, with other settings, does not replace the shards
// that were counted and partly run.
func TestRun_AManifestOfAnotherCut(t *testing.T) {
	t.Parallel()
	r := setup(t)
	rec, fence := r.job(t, rowmill.Spec{Spooled: r.put(t, "spooled/rows", "\"a\"\n\"b\"\n\"c\"\n\"d\"\n")})
	again := *rec // the record on a node that hangs
	r.ShardRows = 2
	m := r.runs(t, rec, fence)
	*rec = must.Get(r.store.Update(t.Context(), fence, func(r *store.Record) error {
		r.Job.NumRows, r.Shards, r.Cut = &m.Rows, len(m.Shards), m.ShardHash()
		return nil
	}))(t)
	r.runs(t, rec, fence) // the manifest that counts
	must.Succeed(t, r.Bucket.Delete(t.Context(), layout.ManifestKey(rec.Job.ID)))
	r.ShardRows = 3
	r.runs(t, &again, fence)
	r.ShardRows = 2
	if m, err := r.run(t, rec, fence); !errors.Is(err, shard.ErrCorrupt) {
		t.Errorf("the manifest of another cut: %d shards, %v, want ErrCorrupt", len(m.Shards), err)
	}
}

// A shard that a node wrote late in place of the right one is not taken over.
func TestTakeOver_OfAShardOfAnotherCut(t *testing.T) {
	t.Parallel()
	r := setup(t)
	old := r.halfDone(t)
	must.Succeed(t, r.Bucket.Copy(t.Context(), layout.ShardKey(old.Job.ID, 3), layout.ShardKey(old.Job.ID, 2)))
	rec, fence := r.continues(t, old.Job.ID, false)
	if _, err := r.run(t, rec, fence); !errors.Is(err, shard.ErrCorrupt) {
		t.Errorf("rows of another place: %v, want ErrCorrupt", err)
	}
}
