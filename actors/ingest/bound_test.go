package ingest

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/shard"
)

// With bounds and with counts, a job fails if and only if its rows have more tokens than
// the quota. The reported size of a running job is at least the true number of tokens
// and at most the quota. Copies of rows have no tokens.
func TestRun_BoundsDecideAsCountsDo(t *testing.T) {
	t.Parallel()
	r := setup(t)
	rapid.Check(t, func(t *rapid.T) {
		r := &rig{Config: r.Config, store: r.store, session: r.session}
		r.ShardRows = rapid.IntRange(1, 20).Draw(t, "rows of a shard")
		texts := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
			return strings.Repeat("é word ", rapid.IntRange(0, 3).Draw(t, "é")) + strings.Repeat("word ", rapid.IntRange(0, 9).Draw(t, "words"))
		}), 1, 60).Draw(t, "texts")
		spec := rowmill.Spec{
			Model: rowmill.Model{ID: "m", Kind: rowmill.KindGeneration, Template: rapid.SampledFrom([]string{"chatml", ""}).Draw(t, "template")}, Spooled: r.spool(t, texts...),
			JobQuotas: rowmill.JobQuotas{TokenQuota: rapid.Int64Range(1, 3000).Draw(t, "quota")}, Estimate: rapid.Bool().Draw(t, "estimate"),
			RowRules: rowmill.RowRules{Dedup: rapid.Bool().Draw(t, "dedup")},
		}
		r.DedupRows = rapid.IntRange(1, 30).Draw(t, "rows remembered")
		rec, fence := r.job(t, spec)
		count, tokens := tokenCounter(t, &rec.Spec, words{}), int64(0)
		originals, copies := originalsOf(texts, r.DedupRows, spec.Dedup), int64(0)
		for i, text := range texts {
			if originals[i] != int64(i) {
				copies++
				continue
			}
			tokens += int64(count.Count(text))
		}
		m, err := r.run(t, rec, fence)
		var failure *rowmill.Failure
		switch {
		case tokens > spec.TokenQuota:
			if !errors.As(err, &failure) || failure.Code != rowmill.CodeTokenQuota {
				t.Fatalf("%d tokens: error = %v, want that the quota of %d is exceeded", tokens, err, spec.TokenQuota)
			}
		case err != nil:
			t.Fatalf("%d tokens, within the quota of %d: %v", tokens, spec.TokenQuota, err)
		case spec.Estimate:
			if want := (shard.InputSize{Rows: int64(len(texts)) - copies, Tokens: tokens}); m.Estimated != want || m.Copies > 0 {
				t.Fatalf("the input has %+v, want %+v; %d copies run", m.Estimated, want, m.Copies)
			}
		case m.Tokens < tokens, m.Tokens > spec.TokenQuota:
			t.Fatalf("the manifest says %d tokens of %d, with a quota of %d", m.Tokens, tokens, spec.TokenQuota)
		case m.Copies != copies:
			t.Fatalf("the manifest says %d copies, want %d", m.Copies, copies)
		default:
			r.listed(t, rec.Job.ID, &spec, m, originals)
		}
	})
}

// originalsOf returns for each text the row that it is a copy of, or the row itself.
func originalsOf(texts []string, remembered int, dedup bool) (originals []int64) {
	first := make(map[string]int64)
	for i, text := range texts {
		row, again := first[text]
		switch {
		case dedup && again:
		case dedup && len(first) < remembered:
			row = int64(i)
			first[text] = row
		default:
			row = int64(i)
		}
		originals = append(originals, row)
	}
	return originals
}

// listed verifies the stored list of a job's copies.
func (r *rig) listed(t *rapid.T, id string, spec *rowmill.Spec, m shard.Manifest, want []int64) {
	list, err := ReadCopies(t.Context(), r.Bucket, id, spec, m)
	switch {
	case err != nil:
		t.Fatal(err)
	case list == nil && m.Copies == 0:
		return
	case list == nil:
		t.Fatalf("there is no list of %d copies", m.Copies)
	}
	o := must.Get(list.Open(t.Context(), r.Bucket, id))(t)
	defer o.Close()
	for n, info := range m.Shards {
		rows, originals := list.Rows(n), []int64(nil)
		if rows != nil {
			originals = must.Get(list.ReadOriginals(o, n))(t)
		}
		for rel := range info.Rows {
			row, of := info.First+int64(rel), info.First+int64(rel)
			if rows != nil && rows.Contains(uint32(rel)) {
				of, originals = originals[0], originals[1:]
			}
			if of != want[row] {
				t.Fatalf("row %d is a copy of row %d, want %d", row, of, want[row])
			}
		}
	}
}

// A row that may be too long is always counted.
func TestRun_ARowThatMayBeTooLongIsCounted(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.fails(t, rowmill.Spec{
		Model:    rowmill.Model{ID: "m", Kind: rowmill.KindGeneration, ContextLength: 100, Template: "chatml"},
		Sampling: map[string]any{"max_tokens": int64(50)}, Spooled: r.spool(t, "short", strings.Repeat("word ", 20), strings.Repeat("word ", 60)),
	}, rowmill.CodeRowTooLong, "Row 2 ")
}
