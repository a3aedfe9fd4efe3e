package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/input/sources"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/results"
)

// A lakeRig has a source "lake" in a folder, and counts its open files.
type lakeRig struct {
	*rig
	dir    string
	opened atomic.Int32
	mu     sync.Mutex
	open   int
	most   int                     // largest number of files that were open at the same time
	before func(path string) error // called before a file is opened; nil for nothing
	read   func()                  // called before a read; nil for nothing
	listed func(files int) error   // called after each listed file with their number; nil for nothing
}

func setupLake(t *testing.T) *lakeRig {
	t.Helper()
	r := &lakeRig{rig: setup(t), dir: t.TempDir()}
	r.Parts = r.store
	r.Sources = sources.New([]sources.Source{{Name: "lake", Place: &countedPlace{sources.NewFolder(r.dir, nil), r}, Accounts: []string{"default"}}})
	return r
}

type countedPlace struct {
	sources.Place
	rig *lakeRig
}

func (p *countedPlace) Open(ctx context.Context, file blob.ObjectInfo) (blob.Object, error) {
	if p.rig.before != nil {
		if err := p.rig.before(file.Key); err != nil {
			return nil, err
		}
	}
	o, err := p.Place.Open(ctx, file)
	if err == nil {
		p.rig.opened.Add(1)
		p.rig.count(1)
	}
	return &countedObject{o, p.rig}, err
}

func (p *countedPlace) List(ctx context.Context, prefix string, match func(path string) bool, more func(found []blob.ObjectInfo) bool) ([]blob.ObjectInfo, error) {
	var failed error
	all, err := p.Place.List(ctx, prefix, match, func(found []blob.ObjectInfo) bool {
		wants := more(found)
		if p.rig.listed != nil {
			failed = p.rig.listed(len(found))
		}
		return wants && failed == nil
	})
	return all, errors.Join(err, failed)
}

type countedObject struct {
	blob.Object
	rig *lakeRig
}

func (o *countedObject) ReadAt(p []byte, off int64) (int, error) {
	if o.rig.read != nil {
		o.rig.read()
	}
	return o.Object.ReadAt(p, off)
}

func (o *countedObject) Close() error {
	o.rig.count(-1)
	return o.Object.Close()
}

func (r *lakeRig) count(change int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open += change
	r.most = max(r.most, r.open)
}

// file writes a file of the lake.
func (r *lakeRig) file(t testing.TB, path, content string) {
	t.Helper()
	name := filepath.Join(r.dir, path)
	must.Succeed(t, os.MkdirAll(filepath.Dir(name), 0o700))
	must.Succeed(t, os.WriteFile(name, []byte(content), 0o600))
}

// closed verifies that no file is open.
func (r *lakeRig) closed(t *testing.T) {
	t.Helper()
	if r.open != 0 {
		t.Errorf("%d files are still open", r.open)
	}
}

func gzipOf(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	must.Get(w.Write([]byte(text)))(t)
	must.Succeed(t, w.Close())
	return b.String()
}

func parquetOf[T any](t testing.TB, rows ...T) string {
	t.Helper()
	var b bytes.Buffer
	must.Succeed(t, parquet.Write(&b, rows))
	return b.String()
}

type review struct {
	Text string `parquet:"text"`
	ID   string `parquet:"id"`
}

func column(name string) rowmill.ColumnChoice { return rowmill.ColumnChoice{Column: name} }

// TestFiles reads files of all formats as one input, with the columns of their folders.
func TestFiles(t *testing.T) {
	t.Parallel()
	r := setupLake(t)
	r.file(t, "all/day=1/a.csv", "id,text\n1,one\n2,two\n")
	r.file(t, "all/day=1/b.tsv", "text\tid\nthree\t3\n")
	r.file(t, "all/day=2/c.jsonl", `{"text":"four","id":"4"}`+"\n")
	r.file(t, "all/day=2/d.parquet", parquetOf(t, review{"five", "5"}, review{"six", "6"}))
	r.file(t, "all/day=3/e.csv.gz", gzipOf(t, "id,text\n7,seven\n"))
	r.file(t, "all/day=3/f.jsonl.zst", string(must.Get(zstd.NewWriter(nil))(t).EncodeAll([]byte(`{"id":"8","text":"eight"}`), nil)))
	// These files have no rows.
	r.file(t, "all/day=0/empty.csv", "")
	r.file(t, "all/day=0/blank.csv.gz", gzipOf(t, "\n"))
	r.file(t, "all/day=1/header.csv", "text,id\n")
	r.file(t, "all/day=2/none.parquet", parquetOf[review](t))
	r.file(t, "all/day=2/_SUCCESS", "x")

	texts := []string{"one", "two", "three", "four", "five", "six", "seven", "eight"}
	r.reads(t, rowmill.Spec{Source: "lake:all/**", ColumnChoice: column("text")}, texts...)
	rec, fence := r.job(t, rowmill.Spec{Source: "lake:all/**", Function: templateOf("{{day}}: {{text}}", "day", "text"), ColumnChoice: rowmill.ColumnChoice{IDColumn: "id"}})
	m := r.runs(t, rec, fence)
	if got, want := r.texts(t, rec, m), []string{"1: one", "1: two", "1: three", "2: four", "2: five", "2: six", "3: seven", "3: eight"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if m.IDKind != rowmill.IDString || !slices.Equal(m.Fields, []string{"day", "text"}) {
		t.Errorf("IDs of type %v, fields %q", m.IDType, m.Fields)
	}
	r.reads(t, rowmill.Spec{Source: "lake:all/**", ColumnChoice: column("text"), RowChoice: rowmill.RowChoice{Limit: 3, Sample: rowmill.SampleFirst}}, texts[:3]...)

	// An estimate and a job with a limit read all files, and a later job runs the other rows.
	for name, spec := range map[string]rowmill.Spec{
		"estimate": {Estimate: true},
		"limit":    {RowChoice: rowmill.RowChoice{Limit: 2, Sample: rowmill.SampleFirst}},
	} {
		spec.Source, spec.ColumnChoice = "lake:all/**", rowmill.ColumnChoice{Column: "text", Keep: []string{"day"}}
		if spec.Estimate {
			spec.Keep = nil
		}
		first, fence := r.job(t, spec)
		if m := r.runs(t, first, fence); m.InputRows != int64(len(texts)) {
			t.Errorf("%s: the whole input has %d rows, want %d", name, m.InputRows, len(texts))
		}
		if spec.Estimate {
			continue
		}
		if got := r.keptText(t, layout.KeptColumnsKey(first.Job.ID)); got != "day=1|day=1|day=1|day=2|day=2|day=2|day=3|day=3" {
			t.Errorf("%s: kept %s", name, got)
		}
		r.cancel(t, first.Job.ID)
		rest, fence := r.job(t, rowmill.Spec{ColumnChoice: spec.ColumnChoice, Continue: &rowmill.Continuation{Job: first.Job.ID, Rest: true}})
		if got := r.texts(t, rest, r.runs(t, rest, fence)); !slices.Equal(got, texts) {
			t.Errorf("%s: the job with the rest has %q", name, got)
		}
	}

	// The first file decides the name of the column.
	r.file(t, "first/a.csv", "body,id\nx,1\n")
	r.file(t, "first/b.csv", "id,body\n2,y\n")
	r.reads(t, rowmill.Spec{Source: "lake:first/*"}, "x", "y")
	r.file(t, "lines/a.txt", "a, b\n")
	r.file(t, "lines/b.txt", "c\n")
	r.reads(t, rowmill.Spec{Source: "lake:lines/*"}, "a, b", "c")

	// Equal rows of several files run once.
	r.file(t, "twice/a.txt", "same\n")
	r.file(t, "twice/b.txt", "same\n")
	rec, fence = r.job(t, rowmill.Spec{Source: "lake:twice/*", RowRules: rowmill.RowRules{Dedup: true}})
	r.DedupRows = 10
	if m := r.runs(t, rec, fence); m.Rows != 2 || m.Copies != 1 {
		t.Errorf("%d rows with %d copies, want 2 with 1", m.Rows, m.Copies)
	}
	r.closed(t)
}

// TestFiles_Refused wants errors that name the file, and the column or the row.
func TestFiles_Refused(t *testing.T) {
	t.Parallel()
	r := setupLake(t)
	r.file(t, "good/a.csv", "text,id\nx,1\n")
	r.file(t, "column/a.csv", "text,id\nx,1\n")
	r.file(t, "column/b.csv", "body,id\nx,1\n")
	r.file(t, "row/a.csv", "text,id\nx,1\n")
	r.file(t, "row/b.csv", "text,id\nx,1\ny\n")
	r.file(t, "ids/a.csv", "text,id\nx,1\n")
	r.file(t, "ids/b.parquet", parquetOf(t, struct {
		Text string `parquet:"text"`
		ID   int64  `parquet:"id"`
	}{"x", 1}))
	r.file(t, "empty/a.csv", "text\n")
	r.file(t, "empty/b.csv", "\n")
	r.file(t, "chats/a.jsonl", `{"text":[{"role":"user","content":"x"}]}`+"\n")
	r.file(t, "chats/b.jsonl", `{"text":[{"role":"user","content":"x"}]}`+"\n"+`{"text":"no chat"}`+"\n")
	r.file(t, "day=1/a.csv", "text\nx\n")
	r.file(t, "long/a.txt", "1\n2\n")
	r.file(t, "long/b.txt", "3\n4\n")
	r.Limits = input.Limits{MaxRows: 3}
	for _, c := range []struct {
		want string
		spec rowmill.Spec
	}{
		{`File lake:column/b.csv: The input file has no column "text", which column_name names`, rowmill.Spec{Source: "lake:column/*", ColumnChoice: column("text")}},
		{`File lake:column/b.csv: The input file has no column "text", which the prompt names`, rowmill.Spec{Source: "lake:column/*", Function: templateOf("{{text}}", "text")}},
		{`File lake:good/a.csv: The input file has no column "day"`, rowmill.Spec{Source: "lake:good/*", Function: templateOf("{{day}} {{text}}", "day", "text")}},
		{`File lake:row/b.csv: Line 3 of the CSV input has 1 fields`, rowmill.Spec{Source: "lake:row/*", ColumnChoice: column("text")}},
		{`The id column "id" of the file lake:ids/b.parquet has another type`, rowmill.Spec{Source: "lake:ids/*", ColumnChoice: rowmill.ColumnChoice{Column: "text", IDColumn: "id"}}},
		{`The input has no data rows`, rowmill.Spec{Source: "lake:empty/*"}},
		{`Row 1 of the file lake:chats/b.jsonl is no chat`, rowmill.Spec{Source: "lake:chats/*", Messages: true, ColumnChoice: column("text")}},
		{`File lake:day=1/a.csv: All columns of the prompt come from the names of folders`, rowmill.Spec{Source: "lake:day=1/*", Function: templateOf("{{day}}", "day")}},
		{`The files of lake:long/* have more than 3 rows`, rowmill.Spec{Source: "lake:long/*"}},
	} {
		r.fails(t, c.spec, rowmill.CodeInvalidInputFile, c.want)
	}
	r.fails(t, rowmill.Spec{Source: "lake:none/*"}, rowmill.CodeDownloadFailed, "No file with content matches lake:none/*")
	r.fails(t, rowmill.Spec{Source: "pond:a/*"}, rowmill.CodeDownloadFailed, "The source of pond:a/* cannot be read any more")
	r.Sources = nil
	r.fails(t, rowmill.Spec{Source: "lake:good/*"}, rowmill.CodeDownloadFailed, "The source of lake:good/* cannot be read any more")
	r.closed(t)
}

// TestFiles_ListedOnce changes the lake after the files are listed. A later run of the job, and a job
// that continues it, read the listed files only.
func TestFiles_ListedOnce(t *testing.T) {
	t.Parallel()
	r := setupLake(t)
	r.file(t, "x/a.txt", "1\n2\n")
	r.file(t, "x/c.txt", "3\n")
	rec, fence := r.job(t, rowmill.Spec{Source: "lake:x/*"})
	whole := r.Bucket
	r.Bucket = r.dying(1) // the list is stored, the first shard is not
	if _, err := r.run(t, rec, fence); !errors.Is(err, errDied) || !r.has(t, layout.FileListKey(rec.Job.ID)) {
		t.Fatalf("died between the list and the first shard: %v", err)
	}
	r.Bucket = whole
	r.file(t, "x/b.txt", "new\n")
	ended := r.cancel(t, rec.Job.ID)
	must.Succeed(t, KeepInputForResume(t.Context(), r.Bucket, &ended))

	next, nextFence := r.job(t, rowmill.Spec{Continue: &rowmill.Continuation{Job: rec.Job.ID}})
	if got := r.texts(t, next, r.runs(t, next, nextFence)); !slices.Equal(got, []string{"1", "2", "3"}) {
		t.Errorf("a continuation reads %q", got)
	}
	r.reads(t, rowmill.Spec{Source: "lake:x/*"}, "1", "2", "new", "3")

	again, againFence := r.job(t, rowmill.Spec{Source: "lake:x/*"})
	r.Bucket = r.dying(1)
	if _, err := r.run(t, again, againFence); !errors.Is(err, errDied) {
		t.Fatal(err)
	}
	r.Bucket = whole
	r.file(t, "x/c.txt", "changed\n")
	_, err := r.run(t, again, againFence)
	fails(t, err, rowmill.CodeDownloadFailed, "The file lake:x/c.txt has changed or was removed")
	must.Succeed(t, os.Remove(filepath.Join(r.dir, "x/a.txt")))
	_, err = r.run(t, again, againFence)
	fails(t, err, rowmill.CodeDownloadFailed, "The file lake:x/a.txt has changed or was removed")
	r.closed(t)
}

// TestFiles_ChangeDuringTheRead replaces the bytes of a file that is being read.
func TestFiles_ChangeDuringTheRead(t *testing.T) {
	t.Parallel()
	r := setupLake(t)
	r.file(t, "x/a.txt", strings.Repeat("aaaaaaa\n", 1<<17))
	r.file(t, "x/b.txt", "b\n")
	changed := false
	r.Bucket = &hooked{Bucket: r.Bucket, create: func(key string) error {
		if strings.HasSuffix(key, "shard-000001") {
			changed = true
			r.file(t, "x/a.txt", strings.Repeat("bbbbbbb\n", 1<<17))
		}
		return nil
	}}
	r.fails(t, rowmill.Spec{Source: "lake:x/*"}, rowmill.CodeDownloadFailed, "The file lake:x/a.txt has changed")
	if !changed {
		t.Error("no second shard was written")
	}
	r.closed(t)
}

// TestFiles_RowsRunEarly wants the first rows to run before the last file is opened.
func TestFiles_RowsRunEarly(t *testing.T) {
	t.Parallel()
	r := setupLake(t)
	for n := range 3 * filesAhead {
		r.file(t, fmt.Sprintf("x/%03d.txt", n), "a\nb\n")
	}
	ready := make(chan struct{})
	var once sync.Once
	r.Ready = func(EarlyShards) { once.Do(func() { close(ready) }) }
	last := fmt.Sprintf("x/%03d.txt", 3*filesAhead-1)
	r.before = func(path string) error {
		if path == last {
			<-ready // if no rows are ready before the last file, the test hangs
		}
		return nil
	}
	r.ShardRows = 4
	rec, fence := r.job(t, rowmill.Spec{Source: "lake:x/*"})
	if m := r.runs(t, rec, fence); m.Rows != 6*filesAhead {
		t.Errorf("read %d rows", m.Rows)
	}
	r.closed(t)
}

// TestFiles_RowsRunBeforeAllAreListed wants the first rows to run while the other files are listed, but no
// earlier than the list of the first files is stored.
func TestFiles_RowsRunBeforeAllAreListed(t *testing.T) {
	t.Parallel()
	r := setupLake(t)
	var want []string
	for n := range sources.FirstFiles + 2 {
		content := fmt.Sprintf("%d\n", n)
		if n == 0 || n == sources.FirstFiles {
			content = "\n" // no rows
		} else {
			want = append(want, content[:len(content)-1])
		}
		r.file(t, fmt.Sprintf("x/%05d.txt", n), content)
	}
	r.ShardRows = 100
	rec, fence := r.job(t, rowmill.Spec{Source: "lake:x/*"})
	ready := make(chan struct{})
	var once sync.Once
	r.Ready = func(e EarlyShards) {
		once.Do(func() {
			if !r.has(t, layout.FirstFilesKey(rec.Job.ID)) || r.has(t, layout.FileListKey(rec.Job.ID)) {
				t.Error("the first rows are ready without a list of the first files, or after the list of all files")
			}
			close(ready)
		})
	}
	r.listed = func(files int) error {
		if files > sources.FirstFiles {
			<-ready // if no rows are ready before all files are listed, the test hangs
		}
		return nil
	}
	if got := r.texts(t, rec, r.runs(t, rec, fence)); !slices.Equal(got, want) {
		t.Errorf("read %d rows, want %d in the order of the files", len(got), len(want))
	}
	list := must.Get(sources.ReadList(t.Context(), r.Bucket, layout.FileListKey(rec.Job.ID)))(t)
	if n := len(list); n != sources.FirstFiles+2 || list[0].Rows != 0 || list[1].Rows != 1 || list[n-1].Rows != 1 {
		t.Errorf("the stored list has %d files: %v", n, list)
	}
	r.closed(t)
}

// TestFiles_ListingFailsAfterTheFirstRows loses the place while rows of the first files run. The next
// attempt reads the same first files, although others have been written meanwhile.
func TestFiles_ListingFailsAfterTheFirstRows(t *testing.T) {
	t.Parallel()
	r := setupLake(t)
	var want []string
	for n := range sources.FirstFiles + 1 {
		want = append(want, fmt.Sprint(n))
		r.file(t, fmt.Sprintf("x/%05d.txt", n), want[n]+"\n")
	}
	rec, fence := r.job(t, rowmill.Spec{Source: "lake:x/*"})
	r.ShardRows = 100
	ready := make(chan struct{})
	var once sync.Once
	r.Ready = func(EarlyShards) { once.Do(func() { close(ready) }) }
	r.listed = func(files int) error {
		if files > sources.FirstFiles {
			<-ready
			return errDied
		}
		return nil
	}
	_, err := r.run(t, rec, fence)
	fails(t, err, rowmill.CodeDownloadFailed, "The files of lake:x/* cannot be listed")
	r.closed(t)

	r.listed, r.Ready = nil, nil // a later owner
	r.file(t, "x/00000-new.txt", "new\n")
	want = slices.Insert(want, sources.FirstFiles, "new")
	if got := r.texts(t, rec, r.runs(t, rec, fence)); !slices.Equal(got, want) {
		t.Errorf("read %d rows, want %d, the first files first", len(got), len(want))
	}
	r.closed(t)
}

// TestFiles_NeedNoProcessorToWait wants other work to get the only processor while a source is read.
func TestFiles_NeedNoProcessorToWait(t *testing.T) {
	t.Parallel()
	r := setupLake(t)
	processor := make(chan struct{}, 1)
	r.Compute = func(context.Context) (func(), bool) {
		processor <- struct{}{}
		return func() { <-processor }, true
	}
	r.read = func() { // if the reader has the processor, the test hangs
		processor <- struct{}{}
		<-processor
	}
	for n := range filesAhead + 10 {
		r.file(t, fmt.Sprintf("x/%03d.txt", n), strings.Repeat("a row\n", 1<<12))
	}
	r.file(t, "x/long.txt", strings.Repeat("a row\n", 1<<18))
	rec, fence := r.job(t, rowmill.Spec{Source: "lake:x/*"})
	if m := r.runs(t, rec, fence); m.Rows != (filesAhead+10)<<12+1<<18 {
		t.Errorf("read %d rows", m.Rows)
	}
	r.closed(t)
}

// TestFiles_Many opens each file once, and only some of them at the same time.
func TestFiles_Many(t *testing.T) {
	t.Parallel()
	r := setupLake(t)
	const files, rows = 500, 10
	for n := range files {
		r.file(t, fmt.Sprintf("x/%03d.csv", n), "text\n"+strings.Repeat(fmt.Sprintf("row of %d\n", n), rows))
	}
	rec, fence := r.job(t, rowmill.Spec{Source: "lake:x/*"})
	m := r.runs(t, rec, fence)
	if got := r.texts(t, rec, m); m.Rows != files*rows || got[0] != "row of 0" || got[rows*250] != "row of 250" || got[files*rows-1] != "row of 499" {
		t.Errorf("%d rows", m.Rows)
	}
	if r.opened.Load() != files || r.most > filesAhead+1 {
		t.Errorf("files were opened %d times, up to %d at the same time", r.opened.Load(), r.most)
	}
	r.before = func(path string) error {
		if path == "x/300.csv" {
			return errDied
		}
		return nil
	}
	r.fails(t, rowmill.Spec{Source: "lake:x/*"}, rowmill.CodeDownloadFailed, "The file lake:x/300.csv cannot be read. Ask the operator")
	r.closed(t)
}

// TestFiles_Kept keeps columns of files and folders, with types that hold the values of all files.
func TestFiles_Kept(t *testing.T) {
	t.Parallel()
	r := setupLake(t)
	type whole struct {
		Text  string `parquet:"text"`
		Score int64  `parquet:"score"`
	}
	type real struct {
		Score float64 `parquet:"score"`
		Text  string  `parquet:"text"`
	}
	r.file(t, "n/day=1/a.parquet", parquetOf(t, whole{"x", 1}, whole{"y", 2}))
	r.file(t, "n/day=1/b.parquet", parquetOf[real](t))
	r.file(t, "n/day=2/c.parquet", parquetOf(t, real{0.5, "z"}))
	r.file(t, "n/day=2/d.csv", "\n")
	for _, c := range []struct {
		keep []string
		want string
	}{
		{[]string{"*"}, "text=x score=1 day=1|text=y score=2 day=1|text=z score=0.5 day=2"},
		{[]string{"day", "score"}, "day=1 score=1|day=1 score=2|day=2 score=0.5"},
		{[]string{"day"}, "day=1|day=1|day=2"},
	} {
		spec := rowmill.Spec{Source: "lake:n/**", ColumnChoice: rowmill.ColumnChoice{Column: "text", Keep: c.keep}}
		rec, fence := r.job(t, spec)
		r.runs(t, rec, fence)
		if got := r.keptText(t, layout.KeptColumnsKey(rec.Job.ID)); got != c.want {
			t.Errorf("%q: kept %s, want %s", c.keep, got, c.want)
		}
		r.cancel(t, rec.Job.ID)
		next, fence := r.job(t, rowmill.Spec{ColumnChoice: rowmill.ColumnChoice{Keep: c.keep}, Continue: &rowmill.Continuation{Job: rec.Job.ID}})
		r.runs(t, next, fence)
		if got := r.keptText(t, layout.KeptColumnsKey(next.Job.ID)); got != c.want {
			t.Errorf("%q: a continuation keeps %s, want %s", c.keep, got, c.want)
		}
	}
	// Numbers of different sizes get 64 bits.
	r.file(t, "sizes/a.parquet", parquetOf(t, struct {
		Text string  `parquet:"text"`
		N    int32   `parquet:"n"`
		F    float32 `parquet:"f"`
		U    uint8   `parquet:"u"`
		M    int16   `parquet:"m,optional"`
	}{"x", -7, 0.5, 200, 0}))
	r.file(t, "sizes/b.parquet", parquetOf(t, struct {
		Text string  `parquet:"text"`
		N    int64   `parquet:"n"`
		F    float64 `parquet:"f"`
		U    uint64  `parquet:"u"`
		M    float64 `parquet:"m"`
	}{"y", 1 << 40, 0.1, 1 << 63, 2.5}))
	rec, fence := r.job(t, rowmill.Spec{Source: "lake:sizes/*", ColumnChoice: rowmill.ColumnChoice{Column: "text", Keep: []string{"n", "f", "u", "m"}}})
	r.runs(t, rec, fence)
	if got, want := r.keptText(t, layout.KeptColumnsKey(rec.Job.ID)), "n=-7 f=0.5 u=200 m=|n=1099511627776 f=0.1 u=9223372036854775808 m=2.5"; got != want {
		t.Errorf("kept %s, want %s", got, want)
	}

	r.file(t, "sign/a.parquet", parquetOf(t, struct {
		Text string `parquet:"text"`
		N    int32  `parquet:"n"`
	}{"x", 1}))
	r.file(t, "sign/b.parquet", parquetOf(t, struct {
		Text string `parquet:"text"`
		N    uint64 `parquet:"n"`
	}{"x", 1}))
	r.file(t, "type/a.csv", "text,score\nx,1\n")
	r.file(t, "type/b.parquet", parquetOf(t, whole{"x", 1}))
	r.file(t, "lack/a.csv", "text,score\nx,1\n")
	r.file(t, "lack/b.csv", "text\nx\n")
	r.file(t, "more/a.csv", "text\nx\n")
	r.file(t, "more/b.csv", "text,score\nx,1\n")
	for want, spec := range map[string]rowmill.Spec{
		`The file lake:type/b.parquet has another type than the files before in the column "score"`: {Source: "lake:type/*", ColumnChoice: rowmill.ColumnChoice{Keep: []string{"score"}}},
		`The file lake:sign/b.parquet has another type than the files before in the column "n"`:     {Source: "lake:sign/*", ColumnChoice: rowmill.ColumnChoice{Keep: []string{"n"}}},
		`The file lake:lack/b.csv lacks a column of the files before: "score"`:                      {Source: "lake:lack/*", ColumnChoice: rowmill.ColumnChoice{Keep: []string{"*"}}},
		`File lake:lack/b.csv: The input file has no column "score", which keep_columns names`:      {Source: "lake:lack/*", ColumnChoice: rowmill.ColumnChoice{Keep: []string{"score"}}},
		`The file lake:more/b.csv has a column that the files before lack: "score"`:                 {Source: "lake:more/*", ColumnChoice: rowmill.ColumnChoice{Keep: []string{"*"}}},
	} {
		spec.Column = "text"
		r.fails(t, spec, rowmill.CodeInvalidInputFile, want)
	}
	r.reads(t, rowmill.Spec{Source: "lake:more/*", ColumnChoice: rowmill.ColumnChoice{Column: "text", Keep: []string{"text"}}}, "x", "x")
	r.closed(t)
}

// keptText returns the kept columns of a job as a text.
func (r *lakeRig) keptText(t *testing.T, key string) string {
	t.Helper()
	object := must.Get(r.Bucket.Open(t.Context(), key))(t)
	defer object.Close()
	in := must.Get(input.OpenSource(object, object.Size(), input.Options{}, nil))(t)
	defer in.Close()
	var rows []string
	for values := make([]rowmill.ID, len(in.Columns)); in.Next(values) == nil; {
		var cells []string
		for i, v := range values {
			var text any = v.Text
			switch v.Kind {
			case rowmill.IDFloat:
				text = v.Real
			case rowmill.IDInt:
				text = v.Int
			case rowmill.IDUint:
				text = uint64(v.Int)
			}
			cells = append(cells, fmt.Sprintf("%s=%v", in.Columns[i].Name, text))
		}
		rows = append(rows, strings.Join(cells, " "))
	}
	return strings.Join(rows, "|")
}

// TestFiles_JobInput runs the stored input of a job with files again.
func TestFiles_JobInput(t *testing.T) {
	t.Parallel()
	r := setupLake(t)
	r.file(t, "day=1/a.csv", "text\nx\n")
	rec, fence := r.job(t, rowmill.Spec{Source: "lake:day=1/*", Function: templateOf("{{day}} {{text}}", "day", "text")})
	r.runs(t, rec, fence)
	ended := r.cancel(t, rec.Job.ID)
	must.Succeed(t, KeepInputForResume(t.Context(), r.Bucket, &ended))
	r.file(t, "day=1/a.csv", "changed\n")
	r.reads(t, rowmill.Spec{FromJob: rec.Job.ID, Function: templateOf("{{text}} of {{day}}", "day", "text")}, "x of 1")
	if got := results.FieldColumns(rec.Spec.Function); !slices.Equal(got, []string{"day", "text"}) {
		t.Errorf("columns %q", got)
	}
}
