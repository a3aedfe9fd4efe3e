package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/disktest"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/bolt"
	"github.com/rowmill/rowmill/tokenize/prompt"
)

// A fetcher is a Downloader with one file. It calls asked at each request.
type fetcher struct {
	file  string
	err   error
	calls int
	asked func()
}

func (f *fetcher) Fetch(_ context.Context, _ string, w io.Writer) (int64, error) {
	f.calls++
	if f.asked != nil {
		f.asked()
	}
	n, err := io.WriteString(w, f.file)
	return int64(n), errors.Join(err, f.err)
}

// A rig has a store with a session, a bucket and a downloader.
type rig struct {
	Config
	store   *bolt.Store
	session string
	file    *fetcher
}

// A tester is a *testing.T or a *rapid.T.
type tester interface {
	Helper()
	Fatal(args ...any)
}

func setup(t *testing.T) *rig {
	t.Helper()
	st, bucket := disktest.Open(t)
	session := must.Get(st.OpenSession(t.Context(), "node", time.Hour))(t)
	file := &fetcher{}
	return &rig{store: st, session: session, file: file, Config: Config{
		Jobs: st, Bucket: bucket, Downloader: file, Clock: time.Now, ShardRows: 100, ShardBytes: 1 << 20, SampleRows: 100, SampleTokens: 1 << 20,
		Wait:    func(_ context.Context, do func() error) error { return do() },
		Patient: func(ctx context.Context) (context.Context, func()) { return ctx, func() {} },

		Confirm: st.ConfirmPrimary,
		Turn:    func(context.Context) (func(), bool) { return func() {}, true },
		Compute: func(context.Context) (func(), bool) { return func() {}, true },
		Stream:  func() (func(), bool) { return func() {}, true },

		Downloads: newDownloads(t, nil), DownloadsAt: func(context.Context, string, string) (bool, error) { return false, nil },
	}}
}

// job creates a job that this session owns.
func (r *rig) job(t tester, spec rowmill.Spec) (*store.Record, store.Fence) {
	t.Helper()
	spec.Account = "default"
	if spec.Model.ID == "" {
		spec.Model = rowmill.Model{ID: "m", Kind: rowmill.KindGeneration, InputPrice: 1e6, OutputPrice: 1e6}
	}
	job := rowmill.Job{ID: rowmill.NewJobID(), Status: rowmill.StatusPending, RunType: rowmill.RunFull, Model: spec.Model.ID, JobTimes: rowmill.JobTimes{Created: time.Now().UTC()}}
	if spec.Estimate {
		job.RunType = rowmill.RunEstimate
	}
	if _, _, err := r.store.Create(context.Background(), store.Record{Job: job, Spec: spec}, nil); err != nil {
		t.Fatal(err)
	}
	rec := must.Get(r.store.Claim(context.Background(), job.ID, r.session, store.Claim{}))(t)
	return &rec, store.Fence{JobID: job.ID, Session: r.session, Epoch: rec.Epoch}
}

func (r *rig) run(t tester, rec *store.Record, fence store.Fence) (shard.Manifest, error) {
	t.Helper()
	return Run(context.Background(), r.Config, rec, fence, tokenCounter(t, &rec.Spec, words{}))
}

// runs is run for a job that must succeed.
func (r *rig) runs(t tester, rec *store.Record, fence store.Fence) shard.Manifest {
	t.Helper()
	return must.Get(r.run(t, rec, fence))(t)
}

// fails verifies that the ingest of a job fails with this code and text. It returns the
// job's id.
func (r *rig) fails(t *testing.T, spec rowmill.Spec, code, text string) (id string) {
	t.Helper()
	rec, fence := r.job(t, spec)
	_, err := r.run(t, rec, fence)
	fails(t, err, code, text)
	return rec.Job.ID
}

// reads verifies that the input of a job becomes these texts.
func (r *rig) reads(t *testing.T, spec rowmill.Spec, texts ...string) {
	t.Helper()
	rec, fence := r.job(t, spec)
	if got := r.texts(t, rec, r.runs(t, rec, fence)); !slices.Equal(got, texts) {
		t.Errorf("got %q, want %q", got, texts)
	}
}

// get returns the stored record of a job.
func (r *rig) get(t tester, id string) store.Record {
	t.Helper()
	return must.Get(r.store.Get(context.Background(), id))(t)
}

// cancel cancels a job.
func (r *rig) cancel(t tester, id string) store.Record {
	t.Helper()
	return must.Get(r.store.Cancel(context.Background(), id, time.Now(), nil))(t)
}

// has reports whether an object exists.
func (r *rig) has(t tester, key string) bool {
	t.Helper()
	_, err := r.Bucket.Stat(context.Background(), key)
	if err != nil && !errors.Is(err, rowmill.ErrNotFound) {
		t.Fatal(err)
	}
	return err == nil
}

// put writes an object.
func (r *rig) put(t tester, key, content string) string {
	t.Helper()
	must.Get(blob.Write(context.Background(), r.Bucket, key, layout.Bytes, func(w io.Writer) error {
		_, err := io.WriteString(w, content)
		return err
	}))(t)
	return key
}

// A hooked bucket calls the functions that are set.
type hooked struct {
	blob.Bucket
	create func(key string) error // before an object is created or copied
	write  func()                 // before a write
	commit func(key string)       // before an object is committed
}

func (b *hooked) Create(ctx context.Context, key, contentType string) (blob.Writer, error) {
	if b.create != nil {
		if err := b.create(key); err != nil {
			return nil, err
		}
	}
	w, err := b.Bucket.Create(ctx, key, contentType)
	return hookedWriter{w, b, key}, err
}

func (b *hooked) Copy(ctx context.Context, from, to string) error {
	if b.create != nil {
		if err := b.create(to); err != nil {
			return err
		}
	}
	return b.Bucket.Copy(ctx, from, to)
}

type hookedWriter struct {
	blob.Writer
	bucket *hooked
	key    string
}

func (w hookedWriter) Write(p []byte) (int, error) {
	if w.bucket.write != nil {
		w.bucket.write()
	}
	return w.Writer.Write(p)
}

func (w hookedWriter) Commit() (blob.ObjectInfo, error) {
	if w.bucket.commit != nil {
		w.bucket.commit(w.key)
	}
	return w.Writer.Commit()
}

// errDied is the error of an owner that dies.
var errDied = errors.New("died")

// dies returns a function that fails after this many calls.
func dies(calls int) func() error {
	return func() error {
		if calls--; calls < 0 {
			return errDied
		}
		return nil
	}
}

// dying returns a bucket that accepts this many objects.
func (r *rig) dying(objects int) *hooked {
	die := dies(objects)
	return &hooked{Bucket: r.Bucket, create: func(string) error { return die() }}
}

// spool writes rows as a large submission does.
func (r *rig) spool(t tester, texts ...string) string {
	t.Helper()
	var lines strings.Builder
	for _, text := range texts {
		lines.Write(append(must.Get(json.Marshal(text))(t), '\n'))
	}
	return r.put(t, "spooled/"+rowmill.NewJobID(), lines.String())
}

// texts reads the rows of all shards and checks them against the manifest.
func (r *rig) texts(t tester, rec *store.Record, m shard.Manifest) (texts []string) {
	t.Helper()
	for n, info := range m.Shards {
		in := must.Get(archive.OpenShard(context.Background(), r.Bucket, rec.Job.ID, &rec.Spec, n, info))(t)
		if info.First != int64(len(texts)) || info.Rows != in.Rows() {
			t.Fatal(fmt.Sprintf("shard %d has %d rows, the manifest says %+v after %d rows", n, in.Rows(), info, len(texts)))
		}
		for first := 0; first < in.Rows(); {
			block := must.Get(in.ReadBlock(in.BlockOf(first)))(t)
			for ; first < block.First+block.Rows(); first++ {
				texts = append(texts, block.Text(first))
			}
		}
		in.Close()
	}
	if int64(len(texts)) != m.Rows {
		t.Fatal(fmt.Sprintf("%d rows, the manifest says %d", len(texts), m.Rows))
	}
	return texts
}

// fails verifies that err is a failure with this code and text.
func fails(t *testing.T, err error, code, text string) {
	t.Helper()
	var failure *rowmill.Failure
	if !errors.As(err, &failure) || failure.Code != code || !strings.Contains(failure.Message, text) {
		t.Errorf("error = %v, want a failure %s that says %q", err, code, text)
	}
}

func numbered(n int) []string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = fmt.Sprintf("row %d", i)
	}
	return texts
}

// For all rows and limits: all rows are stored in order, the shards keep the limits, and
// all tokens of an estimate are counted.
func TestRun_CutsRowsIntoShards(t *testing.T) {
	t.Parallel()
	r := setup(t)
	rapid.Check(t, func(t *rapid.T) {
		r := &rig{Config: r.Config, store: r.store, session: r.session}
		r.ShardRows, r.ShardBytes = rapid.IntRange(1, 20).Draw(t, "rows of a shard"), rapid.Int64Range(1, 200).Draw(t, "bytes of a shard")
		texts := rapid.SliceOfN(rapid.StringN(0, 30, 60), 1, 60).Draw(t, "texts")
		rec, fence := r.job(t, rowmill.Spec{Spooled: r.spool(t, texts...), Estimate: true})
		m := r.runs(t, rec, fence)
		if got := r.texts(t, rec, m); !slices.Equal(got, texts) {
			t.Fatalf("shards hold %q, want %q", got, texts)
		}
		count, tokens := tokenCounter(t, &rec.Spec, words{}), int64(0)
		for _, text := range texts {
			tokens += int64(count.Count(text))
		}
		if m.Estimated.Tokens != tokens {
			t.Errorf("%d tokens were counted, want %d", m.Estimated.Tokens, tokens)
		}
		at := 0
		for n, info := range m.Shards {
			size := int64(0)
			for _, text := range texts[at : at+info.Rows] {
				size += int64(len(text))
			}
			if at += info.Rows; info.Rows > r.ShardRows || info.Rows > 1 && size > r.ShardBytes {
				t.Errorf("shard %d has %d rows and %d bytes of text, beyond %d and %d", n, info.Rows, size, r.ShardRows, r.ShardBytes)
			}
		}
	})
}

func TestRun_InlineRowsNeedNoObjects(t *testing.T) {
	t.Parallel()
	r := setup(t)
	rec, fence := r.job(t, rowmill.Spec{Inline: []string{"one", "two words"}})
	m, err := r.run(t, rec, fence)
	if err != nil || m.Rows != 2 || m.Tokens != 3 || !slices.Equal(r.texts(t, rec, m), rec.Spec.Inline) {
		t.Errorf("manifest %+v, %v", m, err)
	}
	if objects, err := r.Bucket.List(t.Context(), "jobs/"); err != nil || len(objects) > 0 {
		t.Errorf("objects %v, %v", objects, err)
	}
	r.fails(t, rowmill.Spec{Inline: numbered(11), JobQuotas: rowmill.JobQuotas{RowQuota: 10}, Priority: 1}, rowmill.CodeRowQuota, "--priority 1 --rows 11")
	r.fails(t, rowmill.Spec{Inline: numbered(11), JobQuotas: rowmill.JobQuotas{TokenQuota: 10}}, rowmill.CodeTokenQuota, "10 tokens")
}

// A completed run is not repeated. A run that broke off at any point is.
func TestRun_MayBeRepeated(t *testing.T) {
	t.Parallel()
	r := setup(t)
	whole := r.Bucket
	texts := numbered(250)
	rec, fence := r.job(t, rowmill.Spec{Spooled: r.spool(t, texts...)})
	for broken := range 5 { // three shards, the manifest, nothing
		r.Bucket = whole
		r.Bucket = r.dying(broken)
		m, err := r.run(t, rec, fence)
		if fine := broken == 4; fine != (err == nil) || !fine && !errors.Is(err, errDied) {
			t.Fatalf("with %d writes: %v", broken, err)
		} else if fine && !slices.Equal(r.texts(t, rec, m), texts) {
			t.Error("the rows are not those of the input")
		}
	}
	r.Bucket = r.dying(0)
	must.Succeed(t, whole.Delete(t.Context(), rec.Spec.Spooled))
	if m, err := r.run(t, rec, fence); err != nil || m.Rows != 250 || len(m.Shards) != 3 {
		t.Errorf("with its manifest alone: %+v, %v", m, err)
	}
	r.Bucket = whole
	r.put(t, layout.ManifestKey(rec.Job.ID), "{") // a damaged manifest is never overwritten
	if _, err := r.run(t, rec, fence); err == nil || !strings.Contains(err.Error(), "read manifest") {
		t.Errorf("with a damaged manifest: %v", err)
	}
}

func TestRun_DownloadsOnce(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.file.file = "name,key\nAnn,1\nBob,2\n"
	rec, fence := r.job(t, rowmill.Spec{URL: "https://files.test/rows.csv", ColumnChoice: rowmill.ColumnChoice{IDColumn: "key"}})
	r.file.asked = func() {
		if known := r.get(t, rec.Job.ID); known.DownloadStarted == nil || known.DownloadFinished != nil {
			t.Errorf("when the first byte is asked for the record is %+v", known)
		}
	}
	// If an owner dies after the last shard and before the manifest, the next owner
	// finds the download.
	whole := r.Bucket
	r.Bucket = r.dying(2) // the input and the shard
	if _, err := r.run(t, rec, fence); err == nil {
		t.Fatal("the manifest was written")
	}
	r.Bucket = whole
	if rec.DownloadFinished == nil {
		t.Error("the caller's record does not follow")
	}
	m, err := r.run(t, rec, fence)
	if err != nil || m.IDKind == rowmill.IDNull || !slices.Equal(r.texts(t, rec, m), []string{"Ann", "Bob"}) || r.file.calls != 1 {
		t.Fatalf("manifest %+v, %v after %d downloads, want one", m, err, r.file.calls)
	}
	if r.has(t, layout.RawInputKey(rec.Job.ID)) {
		t.Error("the download is there beside its shards")
	}
	if again, err := r.run(t, rec, fence); err != nil || again.Rows != m.Rows || r.file.calls != 1 {
		t.Errorf("again: %+v, %v after %d downloads, want one", again, err, r.file.calls)
	}
}

func TestRun_ABrokenDownloadIsNotRepeated(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.file.file, r.file.err = "name\nAn", rowmill.Failf(rowmill.CodeDownloadFailed, "The connection broke.")
	rec, fence := r.job(t, rowmill.Spec{URL: "https://files.test/rows.csv"})
	_, err := r.run(t, rec, fence)
	fails(t, err, rowmill.CodeDownloadFailed, "The connection broke.")
	if r.has(t, layout.RawInputKey(rec.Job.ID)) {
		t.Error("half a file is there")
	}
	_, err = r.run(t, rec, fence)
	if fails(t, err, rowmill.CodeDownloadFailed, "only once"); r.file.calls != 1 {
		t.Errorf("%d downloads, want one", r.file.calls)
	}
}

// If an owner dies after the last byte and before the end of the download is recorded,
// the next owner finds the complete input, even if the store has lost more of the
// record.
func TestRun_AWholeDownloadIsNotLost(t *testing.T) {
	t.Parallel()
	for name, started := range map[string]bool{"its begin is noted": true, "its begin is forgotten": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			rec, fence := r.job(t, rowmill.Spec{URL: "https://files.test/rows.csv"})
			if started {
				r.started(t, rec, fence, "")
			}
			r.put(t, layout.RawInputKey(rec.Job.ID), "name\nAnn\nBob\n")
			m, err := r.run(t, rec, fence)
			if err != nil || m.Rows != 2 || r.file.calls != 0 {
				t.Fatalf("%+v, %v after %d downloads, want the rows that are there", m, err, r.file.calls)
			}
			if known := r.get(t, rec.Job.ID); known.DownloadStarted == nil || known.DownloadFinished == nil {
				t.Errorf("the record does not say that the input is whole: %+v", known)
			}
		})
	}
}

func TestRun_ALostLeaseComesBeforeTheDownload(t *testing.T) {
	t.Parallel()
	r := setup(t)
	rec, fence := r.job(t, rowmill.Spec{URL: "https://files.test/rows.csv"})
	fence.Epoch++
	if _, err := r.run(t, rec, fence); !errors.Is(err, rowmill.ErrLeaseLost) || r.file.calls > 0 {
		t.Errorf("%v after %d downloads, want none without a lease", err, r.file.calls)
	}
}

func TestRun_QuotasEndTheReading(t *testing.T) {
	t.Parallel()
	r := setup(t)
	id := r.fails(t, rowmill.Spec{Spooled: r.spool(t, numbered(300)...), JobQuotas: rowmill.JobQuotas{RowQuota: 250}}, rowmill.CodeRowQuota, "at least 251 rows")
	if objects, err := r.Bucket.List(t.Context(), layout.InputPrefix(id)); err != nil || len(objects) > 2 {
		t.Errorf("%d shards were written, %v; want none that ends after the quota", len(objects), err)
	}
	r.reads(t, rowmill.Spec{Spooled: r.spool(t, numbered(250)...), JobQuotas: rowmill.JobQuotas{RowQuota: 250}}, numbered(250)...)
	// The failure of an earlier row is reported, not an error found later in the input.
	lines := `"one two three"` + "\n" + `"four five six"` + "\nno JSON\n"
	r.fails(t, rowmill.Spec{Spooled: r.put(t, "spooled/x", lines), JobQuotas: rowmill.JobQuotas{TokenQuota: 5}}, rowmill.CodeTokenQuota, "counted to row 1")
}

func TestRun_InvalidInputs(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.fails(t, rowmill.Spec{Spooled: r.put(t, "spooled/empty", "")}, rowmill.CodeInvalidInputFile, "no data rows")
	rec, fence := r.job(t, rowmill.Spec{Spooled: "spooled/none"})
	if _, err := r.run(t, rec, fence); !errors.Is(err, rowmill.ErrNotFound) {
		t.Errorf("rows that are not there: %v", err)
	}
	r.file.file = "name\nAnn\n"
	r.fails(t, rowmill.Spec{URL: "https://files.test/rows.csv", ColumnChoice: rowmill.ColumnChoice{Column: "other"}}, rowmill.CodeInvalidInputFile, "other")
	r.reads(t, rowmill.Spec{Spooled: r.put(t, "spooled/bytes", "\"A\xffB\"\n")}, "A\uFFFDB") // text that is not UTF-8
}

func TestRun_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	r := setup(t)
	rec, fence := r.job(t, rowmill.Spec{Spooled: r.spool(t, numbered(300)...)})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, r.Config, rec, fence, tokenCounter(t, &rec.Spec, words{})); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want that of the context", err)
	}
	if _, err := archive.ReadManifest(t.Context(), r.Bucket, rec); !errors.Is(err, rowmill.ErrNotFound) {
		t.Errorf("a manifest is there: %v", err)
	}
}

func TestRun_AFunctionMakesPrompts(t *testing.T) {
	t.Parallel()
	r := setup(t)
	greet := &rowmill.FunctionPrompt{
		Prompt: "Greet {{name}} {{title}}!", Inputs: []rowmill.FunctionInput{{Name: "name", Required: true}, {Name: "title"}},
	}
	lines := `{"name":"Ann","title":"Dr"}` + "\n" + `"ready {{name}}"` + "\n"
	r.reads(t, rowmill.Spec{Spooled: r.put(t, "spooled/objects", lines), Function: greet}, "Greet Ann Dr!", "ready {{name}}")
	r.file.file = "title,name\nDr,Ann\n,Bob\n"
	r.reads(t, rowmill.Spec{URL: "https://files.test/rows.csv", Function: greet}, "Greet Ann Dr!", "Greet Bob !")
	r.Limits.MaxRowBytes = 12
	r.fails(t, rowmill.Spec{Spooled: r.put(t, "spooled/objects", lines), Function: greet}, rowmill.CodeInvalidInputFile, "The prompt of row 0 has 13 bytes, more than 12.")
}

func TestOpenShard_Missing(t *testing.T) {
	t.Parallel()
	r := setup(t)
	if _, err := archive.OpenShard(t.Context(), r.Bucket, "job-none", &rowmill.Spec{}, 3, shard.ManifestEntry{}); !errors.Is(err, rowmill.ErrNotFound) || !strings.Contains(err.Error(), "shard 3") {
		t.Errorf("error = %v, want one that names the shard", err)
	}
	r.put(t, layout.ShardKey("job-none", 3), "damaged")
	if _, err := archive.OpenShard(t.Context(), r.Bucket, "job-none", &rowmill.Spec{}, 3, shard.ManifestEntry{}); err == nil || !strings.Contains(err.Error(), "shard 3") {
		t.Errorf("error = %v, want one that names the shard", err)
	}
}

// tokenCounter returns a counter for the prompts of a job that counts with tokens.
func tokenCounter(t tester, spec *rowmill.Spec, tokens prompt.Tokenizer) *prompt.Counter {
	t.Helper()
	find := func(rowmill.Model) (prompt.Tokenizer, string, error) { return tokens, "", nil }
	return must.Get(prompt.NewCounterFactory(find, func(string, float64) {}, slog.New(slog.DiscardHandler)).NewCounter(spec))(t)
}
