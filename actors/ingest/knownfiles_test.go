package ingest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

// rowsOf returns the rows of the whole input of a job.
func (r *rig) rowsOf(t *testing.T, rec *store.Record, m shard.Manifest) (rows []rowmill.Row) {
	t.Helper()
	in := archive.NewInputReader(t.Context(), r.Bucket, rec.Job.ID, &rec.Spec, m)
	defer in.Close()
	for n := range m.Rows {
		rows = append(rows, must.Get(in.Row(n))(t))
	}
	return rows
}

// TestKnownFiles runs a job that reuses rows. A finished job has read some of its files. The new job must
// have the rows of a job without reuse, and read no file that the finished job has read.
func TestKnownFiles(t *testing.T) {
	t.Parallel()
	prompt := rowmill.Spec{Function: templateOf("{{day}}: {{text}}", "day", "text"), ColumnChoice: rowmill.ColumnChoice{IDColumn: "id"}}
	textOnly := rowmill.Spec{ColumnChoice: rowmill.ColumnChoice{Column: "text", IDColumn: "id"}}
	otherPrompt, noName := prompt, rowmill.Spec{}
	otherPrompt.Function = templateOf("{{text}}", "text")
	for name, c := range map[string]struct {
		first, second rowmill.Spec
		read          int32 // files that the second job reads
	}{
		"a prompt":            {prompt, prompt, 2},
		"a column":            {textOnly, textOnly, 2},
		"another prompt":      {prompt, otherPrompt, 5},
		"the first column":    {noName, noName, 5},
		"a prompt and a text": {textOnly, prompt, 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setupLake(t)
			for day := range 5 {
				r.file(t, fmt.Sprintf("day=%d/a.csv", day), fmt.Sprintf("text,id\nx%d,%d\nbad,%d\ny%d,%d\n", day, 3*day, 3*day+1, day, 3*day+2))
			}
			c.first.Source, c.second.Source = "lake:day=*/*.csv", "lake:day=*/*.csv"
			old, fence := r.job(t, c.first)
			m := r.runs(t, old, fence)
			r.finish(t, old.Job.ID, results.Schema{
				IDColumn: c.first.IDColumn, IDType: m.IDType, Fields: results.FieldColumns(c.first.Function),
			}, "old ", r.rowsOf(t, old, m))
			must.Succeed(t, r.Bucket.DeletePrefix(t.Context(), layout.InputPrefix(old.Job.ID)))

			r.file(t, "day=1/a.csv", "text,id\nchanged,20\n")
			must.Succeed(t, os.Remove(filepath.Join(r.dir, "day=2/a.csv")))
			r.file(t, "day=5/a.csv", "text,id\nx1,30\n")
			plain, plainFence := r.job(t, c.second)
			want := r.rowsOf(t, plain, r.runs(t, plain, plainFence))
			before := r.opened.Load()
			c.second.Reuse = &rowmill.Reuse{From: "x", By: rowmill.ReuseByText, Jobs: []string{rowmill.NewJobID(), old.Job.ID}}
			rec, fence := r.job(t, c.second)
			got := r.rowsOf(t, rec, r.runs(t, rec, fence))
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("rows %v, want %v", got, want)
			}
			if read := r.opened.Load() - before; read != c.read {
				t.Errorf("read %d files, want %d", read, c.read)
			}
			r.closed(t)
		})
	}
}

// TestKnownFiles_IDs has IDs of the types of Parquet.
func TestKnownFiles_IDs(t *testing.T) {
	t.Parallel()
	r := setupLake(t)
	type row struct {
		Text  string    `parquet:"text"`
		Small int16     `parquet:"small"`
		Big   uint64    `parquet:"big"`
		Time  time.Time `parquet:"time,timestamp(microsecond)"`
		Real  float32   `parquet:"real"`
	}
	made := time.Date(2026, 11, 1, 2, 3, 4, 5000, time.UTC)
	r.file(t, "x/a.parquet", parquetOf(t, row{"a", -1, 1 << 63, made, 0.5}, row{"b", 2, 3, made.Add(time.Hour), -1}))
	for _, id := range []string{"small", "big", "time", "real"} {
		spec := rowmill.Spec{Source: "lake:x/*", ColumnChoice: rowmill.ColumnChoice{Column: "text", IDColumn: id}}
		r.file(t, "x/b.parquet", parquetOf(t, row{"old", 5, 6, made, 2}))
		old, fence := r.job(t, spec)
		m := r.runs(t, old, fence)
		r.finish(t, old.Job.ID, results.Schema{IDColumn: id, IDType: m.IDType}, "old ", r.rowsOf(t, old, m))
		r.file(t, "x/b.parquet", parquetOf(t, row{"changed", 5, 6, made, 2}))
		plain, plainFence := r.job(t, spec)
		want := r.rowsOf(t, plain, r.runs(t, plain, plainFence))
		before := r.opened.Load()
		spec.Reuse = &rowmill.Reuse{From: "x", By: rowmill.ReuseByText, Jobs: []string{old.Job.ID}}
		rec, recFence := r.job(t, spec)
		if got := r.rowsOf(t, rec, r.runs(t, rec, recFence)); fmt.Sprint(got) != fmt.Sprint(want) || r.opened.Load() != before+1 {
			t.Errorf("%s: rows %v of %d files, want %v of one file", id, got, r.opened.Load()-before, want)
		}
	}
	r.closed(t)
}

// TestKnownFiles_RemovedData removes the results of the finished job before and while its rows are
// read. The files are read from their source.
func TestKnownFiles_RemovedData(t *testing.T) {
	t.Parallel()
	for name, during := range map[string]bool{"before": false, "during": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setupLake(t)
			var lines strings.Builder // more than is read at a time
			want := []string{"first"}
			for n := range 200 {
				want = append(want, fmt.Sprint(n, strings.Repeat("x", 32<<10)))
				lines.WriteString(want[n+1] + "\n")
			}
			r.file(t, "x/a.csv", "text\nfirst\n")
			r.file(t, "x/b.csv", "text\n"+lines.String())
			spec := rowmill.Spec{Source: "lake:x/*", ColumnChoice: column("text")}
			old, fence := r.job(t, spec)
			m := r.runs(t, old, fence)
			r.finish(t, old.Job.ID, results.Schema{}, "old ", r.rowsOf(t, old, m))
			remove := func() { must.Get(r.store.RemoveData(t.Context(), old.Job.ID, time.Now()))(t) }
			spec.Reuse = &rowmill.Reuse{From: "x", By: rowmill.ReuseByText, Jobs: []string{old.Job.ID}}
			rec, fence := r.job(t, spec)
			before := r.opened.Load()
			if during {
				bucket := &losing{Bucket: r.Bucket}
				r.Bucket = &hooked{Bucket: bucket, create: func(key string) error {
					if strings.Contains(key, "shard-000000") && !bucket.lost {
						bucket.lost = true
						remove()
					}
					return nil
				}}
				r.Wait = func(_ context.Context, do func() error) error {
					err := do()
					if errors.Is(err, rowmill.ErrUnavailable) {
						return do()
					}
					return err
				}
			} else {
				remove()
			}
			if got := r.texts(t, rec, r.runs(t, rec, fence)); !slices.Equal(got, want) {
				t.Errorf("read %d other rows", len(got))
			}
			if read := r.opened.Load() - before; read != 2 {
				t.Errorf("read %d files of the source, want 2", read)
			}
			r.closed(t)
		})
	}
}

// A losing bucket loses all objects that are open when lost becomes true.
type losing struct {
	blob.Bucket
	lost bool
}

func (b *losing) Open(ctx context.Context, key string) (blob.Object, error) {
	o, err := b.Bucket.Open(ctx, key)
	return &losingObject{o, b, !b.lost}, err
}

type losingObject struct {
	blob.Object
	bucket *losing
	before bool // opened before the loss
}

func (o *losingObject) ReadAt(p []byte, off int64) (int, error) {
	if o.before && o.bucket.lost {
		return 0, blob.ErrLost
	}
	return o.Object.ReadAt(p, off)
}
