package commit

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/dir"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

// maker returns a CompactionPlanner over a real bucket.
func maker(t *testing.T, count int) *CompactionPlanner {
	t.Helper()
	bucket := must.Get(dir.Open(dir.Config{Root: t.TempDir(), NoSync: true}))(t)
	t.Cleanup(func() { bucket.Close() })
	return &CompactionPlanner{
		Bucket: bucket, Schema: results.Schema{JobID: "job-1", Model: "m"}, Epoch: 3, Shards: shards(count),
	}
}

// part writes the rows [from, to) of a shard as a part.
func (f *CompactionPlanner) part(t *testing.T, n, from, to int) store.Part {
	t.Helper()
	p := proposal(layout.NewPartKey("job-1", n, 1), n, from, to, 0).Record
	p.Size = must.Get(archive.WritePart(t.Context(), f.Bucket, p.Key, f.Schema, func(rows *results.PartWriter) (err error) {
		for i := from; err == nil && i < to; i++ {
			index := f.Shards[n].First + int64(i)
			err = rows.Add(&rowmill.Row{Index: index, Text: fmt.Sprint("in ", index)}, &rowmill.RowOutput{Text: fmt.Sprint("out ", index), Attempts: 1})
		}
		return err
	}))(t)
	return p
}

// merge runs the compaction that merges parts of a shard.
func (f *CompactionPlanner) merge(t *testing.T, n int, parts ...store.Part) (store.Part, error) {
	t.Helper()
	e := f.PlanMerge(n, parts)
	size, err := e.Run(t.Context(), f.Bucket, once)
	return assign.NewMergedPart(e.Key, size, parts), err
}

// once is a Wait without retries.
func once(_ context.Context, do func() error) error { return do() }

// result makes the artifacts of a job.
func (f *CompactionPlanner) result(t *testing.T, parts []store.Part) (map[string]store.Artifact, error) {
	t.Helper()
	made := make(map[string]store.Artifact)
	for _, name := range []string{MakeFull, MakeRows} {
		e := f.PlanArtifact(name, parts)
		size, err := e.Run(t.Context(), f.Bucket, once)
		if err != nil {
			return nil, err
		}
		made[name] = store.Artifact{Key: e.Key, Size: size}
	}
	return made, nil
}

// texts returns the outputs in a file.
func (f *CompactionPlanner) texts(t *testing.T, key string) string {
	t.Helper()
	o := must.Get(f.Bucket.Open(t.Context(), key))(t)
	defer o.Close()
	var doc strings.Builder
	must.Succeed(t, results.WriteJSON(t.Context(), &doc, o, f.Schema, results.Full))
	return doc.String()
}

func TestPartsBecomeAResult(t *testing.T) {
	t.Parallel()
	f := maker(t, 2)
	second := f.part(t, 1, 0, 10)
	first := must.Get(f.merge(t, 0, f.part(t, 0, 4, 10), f.part(t, 0, 0, 4)))(t)
	if !first.Complete || first.Rows != 10 || first.Shard != 0 || !strings.HasPrefix(first.Key, layout.PartsPrefix("job-1")+"000000-3-") {
		t.Errorf("merged into %+v", first)
	}
	made := must.Get(f.result(t, []store.Part{first, second}))(t)
	got, last := f.texts(t, made[layout.Full].Key), -1
	for i := range 20 {
		at := strings.Index(got, fmt.Sprintf("\"out %d\"", i))
		if at <= last {
			t.Fatalf("row %d is not in its place: %s", i, got)
		}
		last = at
	}
	for name, a := range made {
		if info := must.Get(f.Bucket.Stat(t.Context(), a.Key))(t); a.Size != info.Size || a.Size == 0 {
			t.Errorf("%s has %d bytes, its record says %d", name, info.Size, a.Size)
		}
	}
}

// The joined parts of consecutive shards give the same result as the separate parts.
func TestJoinedPartsBecomeTheSameResult(t *testing.T) {
	t.Parallel()
	f := maker(t, 4)
	var parts []store.Part
	for n := range f.Shards {
		parts = append(parts, f.part(t, n, 0, 10))
	}
	made := must.Get(f.result(t, parts))(t)
	want := f.texts(t, made[layout.Full].Key)
	e := f.PlanJoin(ShardRange{1, 3}, parts[1:3])
	size, err := e.Run(t.Context(), f.Bucket, once)
	if err != nil || e.Rows != 20 || e.First != f.Shards[1].First {
		t.Fatalf("joined as %+v: %v", e, err)
	}
	for _, p := range parts[1:3] {
		must.Succeed(t, f.Bucket.Delete(t.Context(), p.Key))
	}
	made = must.Get(f.result(t, []store.Part{parts[0], {Key: e.Key, Size: size}, parts[3]}))(t)
	if got := f.texts(t, made[layout.Full].Key); got != want {
		t.Errorf("the result is\n%s\nnot\n%s", got, want)
	}
	if _, err := f.PlanJoin(ShardRange{0, 2}, []store.Part{parts[0], parts[3]}).Run(t.Context(), f.Bucket, once); err == nil {
		t.Error("shards were put together that do not follow one another")
	}
}

// Missing rows are an error, and no object remains.
func TestMissingRowsAreAnError(t *testing.T) {
	t.Parallel()
	f := maker(t, 2)
	first := f.part(t, 0, 0, 10)
	if _, err := f.result(t, []store.Part{first}); err == nil || !strings.Contains(err.Error(), "10 rows, not 20") {
		t.Errorf("a result of one of two shards: %v", err)
	}
	if _, err := f.merge(t, 1, f.part(t, 1, 0, 4)); err == nil || !strings.Contains(err.Error(), "4 rows, not 10") {
		t.Errorf("a merge of four of ten rows: %v", err)
	}
	objects, err := f.Bucket.List(t.Context(), layout.JobPrefix("job-1"))
	if err != nil || len(objects) != 2 { // the two parts
		t.Errorf("there are %d objects: %v", len(objects), err)
	}
}

// After a temporary error another attempt makes the file.
func TestFilesAreTriedAgain(t *testing.T) {
	t.Parallel()
	f := maker(t, 1)
	parts := []store.Part{f.part(t, 0, 0, 4), f.part(t, 0, 4, 10)}
	balky := &balkyBucket{Bucket: f.Bucket, refusals: 1}
	tried := 0
	wait := func(_ context.Context, do func() error) error {
		tried++
		if err := do(); err == nil {
			return nil
		}
		return do()
	}
	size, err := f.PlanMerge(0, parts).Run(t.Context(), balky, wait)
	if err != nil || balky.refusals >= 0 || tried != 1 {
		t.Fatalf("merged %v after %d waits, and %d refusals are left", err, tried, balky.refusals)
	}
	if size == 0 {
		t.Error("nothing is there")
	}
}

// A balkyBucket refuses this many objects.
type balkyBucket struct {
	blob.Bucket
	refusals int
}

func (b *balkyBucket) Create(ctx context.Context, key, contentType string) (blob.Writer, error) {
	if b.refusals--; b.refusals >= 0 {
		return nil, io.ErrUnexpectedEOF
	}
	return b.Bucket.Create(ctx, key, contentType)
}

// A merge of thousands of parts, and a result of thousands of shards, has few parts open
// at a time.
func TestFewPartsAreOpenAtATime(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("writes thousands of parts")
	}
	f := maker(t, maxOpen+50) // shards have ten rows
	var complete []store.Part
	for n := range f.Shards {
		complete = append(complete, f.part(t, n, 0, 10))
	}
	watched := &countingBucket{Bucket: f.Bucket}
	f.Bucket = watched
	made := must.Get(f.result(t, complete))(t)
	if most := watched.most.Load(); most > maxOpen+32 || watched.open.Load() != 0 { // two files are made at a time, and each opens some parts ahead
		t.Errorf("%d parts were open at a time and %d still are", most, watched.open.Load())
	}
	if got := strings.Count(f.texts(t, made[layout.Full].Key), "\"out "); got != 10*len(f.Shards) {
		t.Errorf("the result has %d rows, want %d", got, 10*len(f.Shards))
	}

	f.Shards = []shard.ManifestEntry{{Rows: 600}}
	var rows []store.Part
	for i := range 600 {
		rows = append(rows, f.part(t, 0, i, i+1))
	}
	watched.most.Store(0)
	merged, err := f.merge(t, 0, rows...)
	if err != nil || merged.Rows != 600 {
		t.Fatalf("merged into %+v: %v", merged, err)
	}
	if most := watched.most.Load(); most > 300 || watched.open.Load() != 0 {
		t.Errorf("%d parts were open at a time and %d still are", most, watched.open.Load())
	}
}

// A countingBucket counts the open objects.
type countingBucket struct {
	blob.Bucket
	open, most atomic.Int64
}

type countedObject struct {
	blob.Object
	bucket *countingBucket
}

func (b *countingBucket) Open(ctx context.Context, key string) (blob.Object, error) {
	o, err := b.Bucket.Open(ctx, key)
	if err != nil {
		return nil, err
	}
	for now := b.open.Add(1); ; {
		most := b.most.Load()
		if now <= most || b.most.CompareAndSwap(most, now) {
			return countedObject{o, b}, nil
		}
	}
}

func (o countedObject) Close() error {
	o.bucket.open.Add(-1)
	return o.Object.Close()
}
