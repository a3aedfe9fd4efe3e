package actors_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/rowmill/rowmill"
)

// A job runs only the rows that no finished job has run, also in a chain of jobs, and pays for these
// rows alone. Its result has all rows in order.
func TestReuse_RunsOnlyNewRows(t *testing.T) {
	t.Parallel()
	for name, embedding := range map[string]bool{"answers": false, "embeddings": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inVirtualTime(t, func(t *testing.T) {
				e := counting(echo)
				b := setup(t, &e.scripted)
				spec, tokens := rowmill.Spec{}, int64(3) // of each row
				if embedding {
					spec.Model, tokens = embedder, 2
				}
				all := map[string]bool{}
				jobs := []string{}
				for run := range 4 {
					texts := numbered(400)
					for i := range texts {
						if i%100 == 7 {
							texts[i] = fmt.Sprint("text ", i, " of run ", run)
						}
					}
					slices.Reverse(texts[:200])
					texts = texts[:400-run]
					fresh := 0
					for _, text := range texts {
						if !all[text] {
							all[text] = true
							fresh++
						}
					}
					spec.Spooled, spec.Reuse = b.spool(texts), &rowmill.Reuse{From: "nightly", By: rowmill.ReuseByText, Jobs: jobs}
					rec := b.end(b.submit(spec))
					if rec.Job.Status != rowmill.StatusSucceeded {
						t.Fatalf("run %d: %s: %+v", run, rec.Job.Status, rec.Job.FailureReason)
					}
					if rec.Job.RowsTakenOver != int64(len(texts)-fresh) || *rec.Job.InputTokens != tokens*int64(fresh) {
						t.Errorf("run %d: %d tokens, %d rows were taken over; %d rows are new", run, *rec.Job.InputTokens, rec.Job.RowsTakenOver, fresh)
					}
					if !embedding {
						b.checkEcho(rec, texts)
					}
					jobs = append([]string{rec.Job.ID}, jobs...)
				}
				if !embedding {
					e.once(t, slices.Collect(maps.Keys(all)))
				}
				if spent := b.spent(); spent.Rows != int64(len(all)) || spent.InputTokens != tokens*int64(len(all)) {
					t.Errorf("the ledger has %+v, for %d different rows", spent, len(all))
				}
			})
		})
	}
}
