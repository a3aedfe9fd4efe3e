package ingest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/store"
)

// Whatever the speed of the download and of the reader, the reader gets every byte in
// order, and ends where the stored input ends.
func TestFollower_ReadsWhatComes(t *testing.T) {
	t.Parallel()
	r := setup(t)
	rapid.Check(t, func(t *rapid.T) {
		file := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "file")
		key := layout.RawInputKey(rowmill.NewJobID())
		patience := rapid.SampledFrom([]time.Duration{0, 50 * time.Microsecond, time.Hour}).Draw(t, "patience")
		d := &download{done: make(chan struct{}), tail: newDownloadTail(rapid.IntRange(1, 100).Draw(t, "kept"), patience)}
		f := &downloadFollower{ctx: context.Background(), download: d, bucket: r.Bucket, key: key, rest: func(wait func()) error { wait(); return nil }}
		chunks := rapid.SliceOfN(rapid.IntRange(1, 150), 1, 8).Draw(t, "chunks")
		var writes sync.WaitGroup
		writes.Go(func() {
			left := file
			for i := 0; len(left) > 0; i++ {
				n := min(chunks[i%len(chunks)], len(left))
				d.tail.write(context.Background(), left[:n])
				left = left[n:]
			}
			r.put(t, key, string(file))
			close(d.done)
		})
		var src io.Reader = f
		if rapid.Bool().Draw(t, "slowly") {
			src = iotest.OneByteReader(f)
		}
		got, err := io.ReadAll(src)
		writes.Wait()
		if err = errors.Join(err, f.Close()); err != nil || !bytes.Equal(got, file) {
			t.Fatalf("read %d bytes of %d: %v", len(got), len(file), err)
		}
	})
}

// A download does not wait for a reader that has left.
func TestTail_WithoutAReader(t *testing.T) {
	t.Parallel()
	tail := newDownloadTail(10, time.Hour)
	close(tail.left)
	tail.write(t.Context(), make([]byte, 1000))
	if _, lost, _ := tail.readAtOffset(make([]byte, 10), 0); tail.came != 1000 || !lost {
		t.Errorf("%d bytes came", tail.came)
	}
}

// A halting server sends the start of a file, and the rest when may is closed.
type halting struct {
	first, rest string
	may         chan struct{}
	err         error // at the end
}

func (s *halting) Fetch(_ context.Context, _ string, w io.Writer) (int64, error) {
	n, err := io.WriteString(w, s.first)
	if err != nil {
		return int64(n), err
	}
	<-s.may
	more, err := io.WriteString(w, s.rest)
	return int64(n + more), errors.Join(err, s.err)
}

// sent returns a server that sends a whole file at once.
func sent(file string) *halting {
	may := make(chan struct{})
	close(may)
	return &halting{first: file, may: may}
}

// unassigned is a number of rows large enough to decide that they run in input order.
const unassigned = 4100

func csvOf(rows []string) string { return strings.Join(rows, "\n") + "\n" }

// alongside runs the ingest of a job with a URL whose rows may run early.
func (r *rig) alongside(t *testing.T, server *halting, ready func(EarlyShards)) (shard.Manifest, []string, error) {
	t.Helper()
	r.Downloader, r.Ready = server, ready
	rec, fence := r.job(t, rowmill.Spec{URL: "https://files.example/rows"})
	m, err := r.run(t, rec, fence)
	if err != nil {
		return m, nil, err
	}
	if rec.DownloadFinished == nil {
		t.Error("the record does not say that the download has ended")
	}
	return m, r.texts(t, rec, m), nil
}

// Shards are announced while the rest is still to come, each once and in order. They are
// the same shards that cutting the stored input would make.
func TestRun_CutsWhileItDownloads(t *testing.T) {
	t.Parallel()
	r := setup(t)
	rows := numbered(730)
	server := &halting{first: "text\n" + csvOf(rows[:350]), rest: csvOf(rows[350:]), may: make(chan struct{})}
	var told []shard.ManifestEntry
	m, texts, err := r.alongside(t, server, func(b EarlyShards) {
		before := len(told)
		if told = append(told, b.Shards...); before < 3 && len(told) >= 3 {
			close(server.may) // three shards are all that was sent
		}
	})
	must.Succeed(t, err)
	if !slices.Equal(texts, rows) || !slices.Equal(told, m.Shards) || len(told) != 8 {
		t.Errorf("%d rows, told of %+v, and cut %+v", len(texts), told, m.Shards)
	}
	rec, fence := r.job(t, rowmill.Spec{Spooled: r.spool(t, rows...)})
	r.Ready = nil
	if whole, err := r.run(t, rec, fence); err != nil || whole.ShardHash() != m.ShardHash() || whole.Tokens != m.Tokens {
		t.Errorf("cut at once into %+v, %v", whole, err)
	}
}

// An invalid row ends the job before the rest arrives. An error of the server is
// reported as such.
func TestRun_ErrorsDuringTheDownload(t *testing.T) {
	t.Parallel()
	r := setup(t)
	never := make(chan struct{})
	t.Cleanup(func() { close(never) })
	_, _, err := r.alongside(t, &halting{first: "text\n" + csvOf(numbered(350)) + "a,b\n" + csvOf(numbered(1)), may: never}, func(EarlyShards) {})
	fails(t, err, rowmill.CodeInvalidInputFile, "Line 352 of the CSV input has 2 fields")

	server := sent("text\n" + csvOf(numbered(350)))
	server.err = rowmill.Failf(rowmill.CodeDownloadFailed, "it broke off")
	_, _, err = r.alongside(t, server, func(EarlyShards) {})
	fails(t, err, rowmill.CodeDownloadFailed, "it broke off")

	_, _, err = r.alongside(t, sent("PAR1nothing"), func(EarlyShards) { t.Error("shards of an invalid file") })
	fails(t, err, rowmill.CodeInvalidInputFile, "Parquet")
}

// A job beyond a quota fails after all of its input is stored, for a job that continues
// it.
func TestRun_AQuotaIsExceededDuringTheDownload(t *testing.T) {
	t.Parallel()
	r := setup(t)
	server := &halting{first: "text\n" + csvOf(numbered(350)), rest: csvOf(numbered(1)), may: make(chan struct{})}
	r.Bucket = &hooked{Bucket: r.Bucket, create: func(key string) error {
		if strings.HasSuffix(key, "/shard-000002") { // the shard that exceeds the quota
			close(server.may)
		}
		return nil
	}}
	r.Downloader, r.Ready = server, func(EarlyShards) {}
	rec, fence := r.job(t, rowmill.Spec{URL: "https://files.example/rows", JobQuotas: rowmill.JobQuotas{RowQuota: 250}})
	_, err := r.run(t, rec, fence)
	fails(t, err, rowmill.CodeRowQuota, "The input has at least 251 rows")
	if !r.has(t, layout.RawInputKey(rec.Job.ID)) || rec.DownloadFinished == nil {
		t.Errorf("the input is not there; finished: %v", rec.DownloadFinished)
	}
}

// If the bucket fails during the cut, the stored input is cut again, and no shard is
// announced twice.
func TestRun_CutsTheStoredInputAgain(t *testing.T) {
	t.Parallel()
	r := setup(t)
	failed := false
	r.Bucket = &hooked{Bucket: r.Bucket, create: func(key string) error {
		if strings.HasSuffix(key, "/shard-000002") && !failed {
			failed = true
			return io.ErrUnexpectedEOF
		}
		return nil
	}}
	var told []shard.ManifestEntry
	rows := numbered(unassigned + 350)
	m, texts, err := r.alongside(t, sent("text\n"+csvOf(rows)), func(b EarlyShards) { told = append(told, b.Shards...) })
	if err != nil || !slices.Equal(texts, rows) || !slices.Equal(told, m.Shards) || !failed {
		t.Errorf("%d rows, told of %+v, and cut %+v: %v", len(texts), told, m.Shards, err)
	}
}

// If Stream has no place, the input is cut after it is stored.
func TestRun_WithoutAPlaceItCutsTheStoredInput(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.Stream = func() (func(), bool) { return nil, false }
	rows := numbered(unassigned + 150)
	told := 0
	_, texts, err := r.alongside(t, sent("text\n"+csvOf(rows)), func(b EarlyShards) { told += len(b.Shards) })
	if err != nil || !slices.Equal(texts, rows) || told != unassigned/100+2 {
		t.Errorf("%d rows, told of %d shards: %v", len(texts), told, err)
	}
}

// keeping counts the stored downloads.
func (r *rig) keeping() (kept *atomic.Int64) {
	kept = new(atomic.Int64)
	r.Bucket = &hooked{Bucket: r.Bucket, commit: func(key string) {
		if strings.HasSuffix(key, "/raw") {
			kept.Add(1)
		}
	}}
	return kept
}

// An input that is cut during its download need not be stored. If the last cut is slow,
// it is stored until the cut has ended.
func TestRun_StoresAnInputThatIsNotCut(t *testing.T) {
	t.Parallel()
	for _, slow := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) { storesAnInputThatIsNotCut(t, slow) }) // otherwise a slow machine would look like a slow bucket
	}
}

func storesAnInputThatIsNotCut(t *testing.T, slow bool) {
	r := setup(t)
	kept := r.keeping()
	rows := numbered(unassigned + 350)
	_, texts, err := r.alongside(t, sent("text\n"+csvOf(rows)), func(EarlyShards) {
		for slow && kept.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
	})
	if err != nil || !slices.Equal(texts, rows) {
		t.Errorf("%d rows: %v", len(texts), err)
	}
	if slow != (kept.Load() == 1) {
		t.Errorf("slow %t: stored %d times", slow, kept.Load())
	}
	objects := must.Get(r.Bucket.List(t.Context(), layout.Jobs))(t)
	if slices.ContainsFunc(objects, func(o blob.ObjectInfo) bool { return strings.HasSuffix(o.Key, "/raw") }) {
		t.Errorf("slow %t: the download is still there", slow)
	}
}

// A forgetfulStore lets another owner take the job when the end of its download is
// recorded.
type forgetfulStore struct {
	store.Jobs
	taken func()
}

func (s *forgetfulStore) Update(ctx context.Context, fence store.Fence, change func(*store.Record) error) (store.Record, error) {
	return s.Jobs.Update(ctx, fence, func(rec *store.Record) error {
		if err := change(rec); err != nil {
			return err
		}
		if rec.DownloadFinished != nil {
			s.taken()
			return rowmill.ErrLeaseLost
		}
		return nil
	})
}

// If the job is lost after its shards are stored and before the record says so, the next
// owner finds the stored download.
func TestRun_StoresTheInputAfterALostLease(t *testing.T) {
	t.Parallel()
	r := setup(t)
	kept := r.keeping()
	owner, lose := context.WithCancel(t.Context())
	r.Jobs = &forgetfulStore{r.Jobs, lose}
	r.Downloader, r.Ready = sent("text\n"+csvOf(numbered(350))), func(EarlyShards) {}
	rec, fence := r.job(t, rowmill.Spec{URL: "https://files.example/rows"})
	if _, err := Run(owner, r.Config, rec, fence, tokenCounter(t, &rec.Spec, words{})); err == nil {
		t.Error("a job that was lost goes on")
	}
	for !r.Downloads.IsIdle() {
		time.Sleep(time.Millisecond)
	}
	if !r.has(t, layout.RawInputKey(rec.Job.ID)) || kept.Load() != 1 {
		t.Errorf("the download is stored %d times", kept.Load())
	}
}
