package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/dir"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

const job = "job-0190f5b2-7c3e-7d4a-9b1c-3f2e1d0c9b8a"

// world is an archive with one job, in a real bucket.
type world struct {
	testing.TB
	*Archive
	bucket blob.Bucket
	schema results.Schema

	mu      sync.Mutex
	job     store.Record
	parts   []store.Part
	lost    []store.Part
	gets    int
	onGet   func() // called before a record is read
	records error  // error of AddArtifact, which then records nothing
}

func setup(t testing.TB, total int64) *world {
	t.Helper()
	opened := must.Get(dir.Open(dir.Config{Root: t.TempDir(), NoSync: true}))(t)
	t.Cleanup(func() { opened.Close() })
	w := &world{TB: t, bucket: opened, schema: results.Schema{JobID: job, Model: "m"}}
	w.job = store.Record{Job: rowmill.Job{ID: job, Status: rowmill.StatusRunning, NumRows: &total}}
	w.write(layout.Deployment, func(io.Writer) error { return nil })
	w.Archive = New(w, opened, slog.New(slog.DiscardHandler))
	return w
}

func (w *world) Get(context.Context, string) (store.Record, error) {
	if w.onGet != nil {
		w.onGet()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gets++
	record := w.job
	record.Artifacts = maps.Clone(record.Artifacts)
	return record, nil
}

func (w *world) ListParts(context.Context, string) ([]store.Part, error) { return w.parts, nil }

func (w *world) LostParts(context.Context, string) ([]store.Part, error) { return w.lost, nil }

func (w *world) MarkPartsLost(_ context.Context, f store.Fence, keys []string, change func(*store.Record)) (store.RowTotals, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f.JobID != job || f.Session != "" {
		return store.RowTotals{}, fmt.Errorf("fence %+v", f)
	}
	w.parts = slices.DeleteFunc(w.parts, func(p store.Part) bool {
		if !slices.Contains(keys, p.Key) {
			return false
		}
		w.lost = append(w.lost, p)
		w.job.Lost.Rows += p.Rows
		w.job.Job.RowsDone -= p.Rows
		return true
	})
	change(&w.job)
	return w.job.Lost, nil
}

func (w *world) AddArtifact(ctx context.Context, _, name string, a store.Artifact) (store.Record, error) {
	if w.records != nil {
		return store.Record{}, w.records
	}
	w.mu.Lock()
	if _, there := w.job.Artifacts[name]; !there {
		w.job.Artifacts[name] = a
	}
	w.mu.Unlock()
	return w.Get(ctx, job)
}

// write makes an object.
func (w *world) write(key string, write func(io.Writer) error) store.Artifact {
	w.Helper()
	writer := must.Get(w.bucket.Create(w.Context(), key, layout.Parquet))(w)
	defer writer.Abort()
	must.Succeed(w, write(writer))
	info := must.Get(writer.Commit())(w)
	return store.Artifact{Key: key, Size: info.Size}
}

// part makes a part of a shard of ten rows. It has a row for each text, from
// row first on. A row with an empty text failed.
func (w *world) part(shard int, first int64, texts ...string) store.Part {
	w.Helper()
	part := store.Part{Key: layout.NewPartKey(job, shard, 1), Shard: shard, Rows: int64(len(texts))}
	part.Size = w.write(part.Key, func(to io.Writer) error {
		p, err := results.NewPartWriter(to, w.schema)
		for i, text := range texts {
			row := rowmill.Row{Index: first + int64(i), Text: fmt.Sprint("input ", first+int64(i))}
			out := rowmill.RowOutput{Text: text, Attempts: 1}
			if text == "" {
				out.Err = &rowmill.RowError{Code: rowmill.RowSchemaViolation, Message: "no"}
				part.Totals.Failed++
			}
			err = errors.Join(err, p.Add(&row, &out))
		}
		return errors.Join(err, p.Close())
	}).Size
	within := uint64(first) - uint64(shard)*10
	var rows roaring.Bitmap
	rows.AddRange(within, within+uint64(len(texts)))
	part.Accepted, _ = rows.ToBytes()
	return part
}

// committed returns the records of parts that are committed in this order. A
// part is accepted for the rows that no earlier part holds.
func (w *world) committed(parts ...store.Part) []store.Part {
	w.Helper()
	done := map[int]*roaring.Bitmap{}
	for i := range parts {
		p := &parts[i]
		if done[p.Shard] == nil {
			done[p.Shard] = roaring.New()
		}
		rows := roaring.New()
		must.Succeed(w, rows.UnmarshalBinary(p.Accepted))
		rows.AndNot(done[p.Shard])
		done[p.Shard].Or(rows)
		p.Rows = int64(rows.GetCardinality())
		p.Accepted, _ = rows.ToBytes()
	}
	slices.SortStableFunc(parts, func(a, b store.Part) int { return a.Shard - b.Shard })
	return parts
}

// finish makes the result files of complete parts and sets the job to
// succeeded.
func (w *world) finish(parts ...store.Part) {
	w.Helper()
	var sources []results.Source
	for _, part := range parts {
		source := must.Get(w.bucket.Open(w.Context(), part.Key))(w)
		defer source.Close()
		sources = append(sources, source)
	}
	artifacts := map[string]store.Artifact{
		layout.Full: w.write(layout.NewArtifactKey(job, layout.Full, 1), func(to io.Writer) error {
			_, err := results.ConcatParts(w.Context(), to, w.schema, sources, results.Full)
			return err
		}),
		layout.Rows: w.write(layout.NewArtifactKey(job, layout.Rows, 1), func(to io.Writer) error {
			_, err := results.ConcatRows(w.Context(), to, w.schema, sources)
			return err
		}),
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.job.Job.Status, w.job.Artifacts = rowmill.StatusSucceeded, artifacts
}

// row returns a short form of the result of ReadRow.
func (w *world) row(n int64) string {
	w.Helper()
	view, err := w.ReadRow(w.Context(), w.job, n)
	switch {
	case errors.Is(err, ErrNoRow):
		return "none"
	case errors.Is(err, ErrNotDone):
		return "not done"
	case err != nil:
		w.Fatal(err)
	}
	return fmt.Sprint(view.Output)
}

// failed returns the failed rows, read in pages of a size.
func (w *world) failed(size int) (rows []int64) {
	w.Helper()
	for from := FirstFailurePosition(); ; {
		found, more, err := w.ListFailures(w.Context(), w.job, from, size)
		if err != nil || len(found) > size {
			w.Fatalf("%d failures on a page of %d, %v", len(found), size, err)
		}
		for _, f := range found {
			rows = append(rows, f.Row)
		}
		if more == nil {
			return rows
		}
		from = *more
	}
}

func TestRow_TheFirstPartInTheOrderOfCommitCounts(t *testing.T) {
	t.Parallel()
	w := setup(t, 10)
	w.parts = w.committed(w.part(0, 0, "a", "b"), w.part(0, 1, "late", "c"))
	for n, want := range []string{"a", "b", "c", "not done"} {
		if got := w.row(int64(n)); got != want {
			t.Errorf("row %d is %s, want %s", n, got, want)
		}
	}
	if got := w.row(10); got != "none" {
		t.Errorf("row 10 is %s", got)
	}
	whole := w.part(0, 0, strings.Split("abcdefghij", "")...)
	w.finish(whole)
	if got := w.row(9); got != "j" {
		t.Errorf("row 9 is %s", got)
	}
	w.job.Job.NumRows = nil // as in an older record
	if got := w.row(10); got != "none" {
		t.Errorf("row 10 of the results is %s", got)
	}
}

func TestFailures_RowsOfLaterPartsAreSkipped(t *testing.T) {
	t.Parallel()
	w := setup(t, 20)
	w.parts = w.committed(
		w.part(0, 2, "ok", ""), w.part(0, 1, "", "", "ok", ""), // an earlier part has rows 2 and 3
		w.part(1, 15, ""), w.part(1, 10, "", "ok"),
	)
	for size := 1; size <= 6; size++ {
		if diff := cmp.Diff([]int64{1, 3, 4, 10, 15}, w.failed(size)); diff != "" {
			t.Errorf("pages of %d (-want +got):\n%s", size, diff)
		}
	}
}

// Parts with one row each must be found by their records. The number of opened
// parts must not grow with the number of parts, for one row or for all failed
// rows.
func TestReading_OpensOnlyPartsThatHoldRows(t *testing.T) {
	t.Parallel()
	const parts = 300
	w := setup(t, 10*parts)
	var all []store.Part
	for i := range parts { // every tenth row failed
		text := "ok"
		if i%10 == 0 {
			text = ""
		}
		p := w.part(0, int64(i), text)
		all = append(all, p)
	}
	w.parts = w.committed(all...)
	counted := &countedBucket{Bucket: w.bucket}
	w.Archive = New(w, counted, slog.New(slog.DiscardHandler))
	if got := w.row(parts - 1); got != "ok" || counted.opened > 2 {
		t.Errorf("row %d is %s, and %d parts were opened for it; want 2 at most", parts-1, got, counted.opened)
	}
	counted.opened = 0
	if got := w.row(parts); got != "not done" || counted.opened > 1 {
		t.Errorf("row %d is %s, and %d parts were opened; want 1 at most", parts, got, counted.opened)
	}
	counted.opened = 0
	if got := w.failed(parts); len(got) != parts/10 || counted.opened > parts/10+1 {
		t.Errorf("%d rows have failed, and %d parts were opened for them; want %d at most", len(got), counted.opened, parts/10+1)
	}
	counted.opened = 0
	if p, err := w.ReadPreview(t.Context(), w.job, 100, 50); err != nil || len(p.Rows) != 50 || counted.opened > 51 {
		t.Errorf("%d rows were shown, and %d parts opened for them: %v; want 51 at most", len(p.Rows), counted.opened, err)
	}
}

// countedBucket counts opened objects.
type countedBucket struct {
	blob.Bucket
	opened int
}

func (b *countedBucket) Open(ctx context.Context, key string) (blob.Object, error) {
	b.opened++
	return b.Bucket.Open(ctx, key)
}

// A reader with an old record finds that its parts were merged.
func TestReading_RetriesAfterObjectsMoved(t *testing.T) {
	t.Parallel()
	w := setup(t, 10)
	old := w.part(0, 0, "a")
	w.parts = []store.Part{old}
	must.Succeed(t, w.bucket.Delete(t.Context(), old.Key))
	if _, err := w.ReadRow(t.Context(), w.job, 0); !errors.Is(err, ErrBusy) || w.gets != maxRereads {
		t.Errorf("error %v after %d reads; want ErrBusy after %d", err, w.gets, maxRereads)
	}
	w.onGet = func() { w.parts = []store.Part{w.part(0, 0, "merged")} }
	if got := w.row(0); got != "merged" {
		t.Errorf("row 0 is %s", got)
	}
	now := time.Now()
	w.parts, w.onGet = []store.Part{old}, func() { w.job.DataRemoved = &now }
	if _, _, err := w.ListFailures(t.Context(), store.Record{Job: w.job.Job}, FirstFailurePosition(), 1); err != nil {
		t.Errorf("parts without failures were opened: %v", err)
	}
	if _, err := w.ReadPreview(t.Context(), store.Record{Job: w.job.Job}, 0, 1); !errors.Is(err, ErrRemoved) {
		t.Errorf("error %v, want ErrRemoved", err)
	}
}

func TestPreview_OfPartsAndResults(t *testing.T) {
	t.Parallel()
	w := setup(t, 30)
	w.parts = []store.Part{w.part(0, 0, "a", ""), w.part(0, 4, "e"), w.part(2, 20, "u")}
	shown := func(offset, limit int64) (text string, end int64) {
		p := must.Get(w.ReadPreview(t.Context(), w.job, offset, limit))(t)
		for i, row := range p.Rows {
			switch {
			case row == nil:
				text += "?"
			case row.Row != offset+int64(i):
				t.Errorf("got row %d, want %d", row.Row, offset+int64(i))
			case row.Code != "":
				text += "!"
			default:
				text += fmt.Sprint(row.Output)
			}
		}
		return text, p.End
	}
	for _, tt := range []struct {
		offset, limit int64
		want          string
		end           int64
	}{{0, 6, "a!??e?", 6}, {18, 4, "??u?", 22}, {28, 100, "??", 30}, {30, 5, "", 30}, {99, 5, "", 99}} {
		if got, end := shown(tt.offset, tt.limit); got != tt.want || end != tt.end {
			t.Errorf("%d rows from %d: %q up to %d; want %q up to %d", tt.limit, tt.offset, got, end, tt.want, tt.end)
		}
	}
	*w.job.Job.NumRows = 3
	w.finish(w.part(0, 0, "x", "", "z"))
	if got, end := shown(0, 9); got != "x!z" || end != 3 {
		t.Errorf("%q up to %d", got, end)
	}
}

func TestParquet_OneFileOfEachVariantCounts(t *testing.T) {
	t.Parallel()
	w := setup(t, 2)
	w.finish(w.part(0, 0, "a", "b"))
	record, v := w.job, results.FileVariant{Inputs: true}
	record.Artifacts = maps.Clone(record.Artifacts)
	made := make(chan store.Artifact, 8)
	for range cap(made) {
		go func() {
			a, err := w.MakeParquet(t.Context(), record, v)
			if err != nil {
				t.Error(err)
			}
			made <- a
		}()
	}
	first := <-made
	for range cap(made) - 1 {
		if next := <-made; next != first {
			t.Errorf("got %v and %v", first, next)
		}
	}
	source, err := w.bucket.Open(t.Context(), first.Key)
	if err != nil || source.Size() != first.Size {
		t.Fatalf("size %d, %v", first.Size, err)
	}
	defer source.Close()
	if whole, err := w.MakeParquet(t.Context(), record, results.Full); err != nil || whole != record.Artifacts[layout.Full] {
		t.Errorf("the full file is %v, %v", whole, err)
	}
}

// Another process may record the variant after this process read the record.
func TestParquet_SecondMakerDeletesItsObject(t *testing.T) {
	t.Parallel()
	w := setup(t, 1)
	w.finish(w.part(0, 0, "a"))
	empty := func(to io.Writer) error { _, err := to.Write([]byte("PAR1")); return err }
	name := results.FileVariant{}.Name()
	winner, mine := w.write(layout.NewSubsetKey(job, name), empty), w.write(layout.NewSubsetKey(job, name), empty)
	w.job.Artifacts[name] = winner
	if got, err := w.addToRecord(t.Context(), job, name, mine); err != nil || got != winner {
		t.Errorf("got %+v, %v; want %+v", got, err, winner)
	}
	if _, err := w.bucket.Stat(t.Context(), mine.Key); err == nil {
		t.Error("the second object still exists")
	}
	if _, err := w.bucket.Stat(t.Context(), winner.Key); err != nil {
		t.Errorf("the winner is missing: %v", err)
	}
}

// If the store gives no answer, the record must be read again.
func TestParquet_RecordThatWasNotConfirmed(t *testing.T) {
	t.Parallel()
	w := setup(t, 1)
	w.finish(w.part(0, 0, "a"))
	w.records = rowmill.ErrUnavailable
	if _, err := w.MakeParquet(t.Context(), w.job, results.FileVariant{}); !errors.Is(err, rowmill.ErrUnavailable) {
		t.Errorf("error %v", err)
	}
	now := time.Now()
	w.job.DataRemoved = &now
	if _, err := w.MakeParquet(t.Context(), w.job, results.FileVariant{}); !errors.Is(err, ErrRemoved) {
		t.Errorf("error %v, want ErrRemoved", err)
	}
}

func TestRemoved_ObjectsDeletedDuringARead(t *testing.T) {
	t.Parallel()
	for _, err := range []error{rowmill.ErrNotFound, blob.ErrLost} {
		if got := MissingAsRemoved(fmt.Errorf("read: %w", err)); !errors.Is(got, ErrRemoved) {
			t.Errorf("%v became %v", err, got)
		}
	}
	if other := errors.New("x"); errors.Is(MissingAsRemoved(other), ErrRemoved) || !errors.Is(MissingAsRemoved(other), other) || MissingAsRemoved(nil) != nil {
		t.Error("another error was changed")
	}
}
