package archive

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// TestPartial_LostPart damages one of three parts of a job that ended without success. The other
// parts stay readable, and the rows of the part are lost.
func TestPartial_LostPart(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(w *world, p store.Part){
		"deleted": func(w *world, p store.Part) { must.Succeed(w, w.bucket.Delete(w.Context(), p.Key)) },
		"half": func(w *world, p store.Part) {
			w.rewrite(p.Key, func(content []byte) []byte { return content[:len(content)/2] })
		},
		"flipped": func(w *world, p store.Part) {
			w.rewrite(p.Key, func(content []byte) []byte {
				content[len(content)/8] ^= 1
				return content
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t, 30)
			w.job.Spec.Inline = make([]string, 30)
			bad := w.part(0, 4, "x", "y")
			w.parts = w.committed(w.part(0, 0, "a", "b"), bad, w.part(0, 8, "c"))
			w.end(time.Now().Add(-time.Hour))
			w.job.Job.RowsDone = 5
			damage(w, bad)
			d, err := w.OpenPartial(t.Context(), w.job)
			must.Succeed(t, err)
			defer d.Close()
			var out bytes.Buffer
			must.Succeed(t, results.WriteJSON(t.Context(), &out, d, d.Schema, results.FileVariant{}))
			var got struct{ Outputs []*string }
			must.Succeed(t, json.Unmarshal(out.Bytes(), &got))
			want := map[int]string{0: "a", 1: "b", 8: "c"}
			for i, o := range got.Outputs {
				if text, done := want[i]; done != (o != nil) || done && *o != text {
					t.Errorf("row %d: %v, want %q", i, o, text)
				}
			}
			failures, _, err := w.ListFailedAndMissing(t.Context(), w.job, FirstFailurePosition(), 100)
			must.Succeed(t, err)
			codes := map[string]int{}
			for _, f := range failures {
				codes[f.Code]++
				if lost := f.Row == 4 || f.Row == 5; lost != (f.Code == rowmill.RowLost) {
					t.Errorf("row %d has the code %s", f.Row, f.Code)
				}
			}
			if len(got.Outputs) != 30 || codes[rowmill.RowLost] != 2 || codes[rowmill.RowNotRun] != 25 {
				t.Errorf("%d outputs, codes %v", len(got.Outputs), codes)
			}
			if w.job.Job.RowsDone != 3 || len(w.job.Job.Warnings) != 1 {
				t.Errorf("%d rows are done, warnings %q", w.job.Job.RowsDone, w.job.Job.Warnings)
			}
		})
	}
}

// TestFindLost_MayAppear asks for parts of a job that has just ended.
func TestFindLost_MayAppear(t *testing.T) {
	t.Parallel()
	w := setup(t, 30)
	bad := w.part(0, 4, "x", "y")
	w.parts = w.committed(w.part(0, 0, "a", "b"), bad)
	w.end(time.Now())
	must.Succeed(t, w.bucket.Delete(t.Context(), bad.Key))
	if _, err := w.MarkLostParts(t.Context(), w.job, nil); !errors.Is(err, ErrBusy) || len(w.lost) > 0 {
		t.Errorf("%v, %d parts are lost", err, len(w.lost))
	}
	// A volume that is not mounted has no object at all, and loses no part.
	w.end(time.Now().Add(-time.Hour))
	must.Succeed(t, w.bucket.Delete(t.Context(), layout.Deployment))
	if _, err := w.MarkLostParts(t.Context(), w.job, nil); !errors.Is(err, rowmill.ErrUnavailable) || len(w.lost) > 0 {
		t.Errorf("in an empty bucket: %v, %d parts are lost", err, len(w.lost))
	}
	w.job.Job.Status = rowmill.StatusRunning
	if _, err := w.MarkLostParts(t.Context(), w.job, nil); err != nil {
		t.Errorf("of a running job: %v", err)
	}
}

// end ends the job without success.
func (w *world) end(at time.Time) {
	w.job.Job.Status, w.job.Job.Completed, w.job.Artifacts = rowmill.StatusFailed, &at, map[string]store.Artifact{}
}

// rewrite replaces an object by what change makes of its bytes.
func (w *world) rewrite(key string, change func([]byte) []byte) {
	w.Helper()
	o := must.Get(w.bucket.Open(w.Context(), key))(w)
	content := must.Get(io.ReadAll(blob.NewReader(o)))(w)
	must.Succeed(w, o.Close())
	w.write(key, func(to io.Writer) error {
		_, err := to.Write(change(content))
		return err
	})
}

// TestLostRows asks for rows at the ends of shards.
func TestLostRows(t *testing.T) {
	t.Parallel()
	w := setup(t, 30)
	w.lost = w.committed(w.part(1, 10, "x", "y"), w.part(1, 19, "z"))
	w.job.Lost.Rows = 3
	l := must.Get(w.readLostRows(t.Context(), w.job, []shard.ManifestEntry{{First: 0, Rows: 10}, {First: 10, Rows: 10}, {First: 20, Rows: 10}}))(t)
	var got []int64
	for row := range int64(31) {
		if l.has(row) {
			got = append(got, row)
		}
	}
	if fmt.Sprint(got) != "[10 11 19]" {
		t.Errorf("lost rows %v", got)
	}
}

// TestScrub_Parts reads the parts of a job without results: a damaged one is a fault. The
// parts of a running job are not read.
func TestScrub_Parts(t *testing.T) {
	t.Parallel()
	w := setup(t, 30)
	bad := w.part(0, 4, "x", "y")
	w.parts = w.committed(w.part(0, 0, "a", "b"), bad)
	w.rewrite(bad.Key, func(content []byte) []byte {
		content[len(content)/8] ^= 1
		return content
	})
	scrub := func(of store.Record, want int, reads bool) {
		t.Helper()
		faults, read, err := Scrub(t.Context(), w.Archive.store, w.bucket, of)
		if err != nil || len(faults) != want || (read > 0) != reads || want > 0 && faults[0].Key != bad.Key {
			t.Errorf("%+v of %d bytes, %v; want %d", faults, read, err, want)
		}
	}
	scrub(w.job, 0, false)
	w.end(time.Now().Add(-time.Hour))
	scrub(w.job, 1, true)
	older := w.job
	older.Version-- // the record has changed since it was read
	scrub(older, 0, true)
}
