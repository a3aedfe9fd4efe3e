package ingest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/shard"
)

// alike returns rows of 12 KB in random order; some begin with the same text. They are
// more than a worker loads at a time.
func alike() (texts []string) {
	for _, i := range rand.New(rand.NewPCG(1, 1)).Perm(4000) {
		texts = append(texts, strings.Repeat(fmt.Sprintf("prefix %03d ", i%700), 1000)+fmt.Sprint("row ", i))
	}
	return texts
}

// Rows with the same beginning have the same group, and their shards are cut as usual. A
// job that continues this one gets the groups, or runs without them if they are lost.
func TestRun_GroupsRowsThatBeginAlike(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.Parts = r.store
	texts := alike()
	rec, fence := r.job(t, rowmill.Spec{Spooled: r.spool(t, texts...)})
	m := r.runs(t, rec, fence)
	groups, err := ReadGroups(t.Context(), r.Bucket, rec.Job.ID, m)
	if err != nil || len(groups) != len(texts) {
		t.Fatalf("%d groups of %d rows, %v", len(groups), len(texts), err)
	}
	of := map[string]byte{}
	for i, text := range r.texts(t, rec, m) {
		if text != texts[i] {
			t.Fatalf("row %d is another", i)
		}
		if before, again := of[text[:11]]; again && before != groups[i] || groups[i] == 0 {
			t.Fatalf("row %d is in group %d, another of its prefix in %d", i, groups[i], before)
		}
		of[text[:11]] = groups[i]
	}
	if again := r.runs(t, rec, fence); !again.Groups || again.ShardHash() != m.ShardHash() {
		t.Errorf("read again: %+v", again)
	}

	r.cancel(t, rec.Job.ID)
	next, fence := r.continues(t, rec.Job.ID, false)
	m = r.runs(t, next, fence)
	if same, err := ReadGroups(t.Context(), r.Bucket, next.Job.ID, m); err != nil || string(same) != string(groups) {
		t.Errorf("its groups are others, %v", err)
	}
	must.Succeed(t, r.Bucket.Delete(t.Context(), layout.GroupsKey(rec.Job.ID)))
	last, fence := r.job(t, rowmill.Spec{Continue: &rowmill.Continuation{Job: rec.Job.ID, AllowDuplicate: true}})
	if m = r.runs(t, last, fence); m.Groups {
		t.Error("the manifest names groups that are lost")
	}
	if none, err := ReadGroups(t.Context(), r.Bucket, last.Job.ID, shard.Manifest{Groups: true, Rows: 4000}); err != nil || none != nil {
		t.Errorf("%d groups that are lost, %v", len(none), err)
	}
}
