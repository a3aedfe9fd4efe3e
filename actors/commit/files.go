package commit

import (
	"bufio"
	"context"
	"fmt"
	"io"

	"github.com/RoaringBitmap/roaring/v2"
	"golang.org/x/sync/errgroup"

	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/contain"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/shard"
	"github.com/rowmill/rowmill/store"
)

// maxOpen bounds the parts that are open for one file that is made of them. One
// that was let go of costs a request to be opened again.
const maxOpen = 1024

// Files make the objects of a job: merged parts, and those of its result. What
// they write is for the owner of one epoch, and writing it again is harmless.
type Files struct {
	Bucket blob.Bucket
	Schema results.Schema
	Epoch  int64
	Shards []shard.Info
	// Wait repeats what may fail for a while.
	Wait func(ctx context.Context, do func() error) error
}

// Merge writes the complete part of a shard and returns its record.
func (f *Files) Merge(ctx context.Context, n int, parts []store.Part) (complete store.Part, err error) {
	key := layout.Part(f.Schema.JobID, n, f.Epoch)
	err = f.Wait(ctx, func() error {
		size, err := f.merge(ctx, n, parts, key)
		complete = assign.Merged(key, size, parts)
		return err
	})
	return complete, err
}

func (f *Files) merge(ctx context.Context, n int, parts []store.Part, key string) (size int64, err error) {
	sources, release, err := f.sources(ctx, n, parts, nil)
	defer release()
	if err != nil {
		return 0, err
	}
	return f.write(ctx, key, int64(f.Shards[n].Rows), func(w io.Writer) (int64, error) {
		return results.Merge(ctx, w, f.Schema, sources)
	})
}

// sources open parts of a shard, with the rows that each is accepted for, or those of
// them that are among some; parts without any are left out. release is to be called
// after an error too.
func (f *Files) sources(ctx context.Context, n int, parts []store.Part, among *roaring.Bitmap) (sources []results.PartSource, release func(), err error) {
	objects := blob.NewLazies(ctx, f.Bucket, maxOpen)
	var open []*blob.Lazy
	release = func() {
		for _, o := range open {
			o.Close()
		}
	}
	for _, p := range parts {
		accepted := roaring.New()
		if p.Complete {
			accepted.AddRange(0, uint64(f.Shards[n].Rows)) //nolint:gosec // a number of rows
		} else if err := accepted.UnmarshalBinary(p.Accepted); err != nil {
			return nil, release, fmt.Errorf("part %s: decode accepted rows: %w", p.Key, err)
		}
		if among != nil {
			if accepted.And(among); accepted.IsEmpty() {
				continue
			}
		}
		part := objects.Object(p.Key, p.Size)
		open = append(open, part)
		sources = append(sources, results.PartSource{Source: part, Accept: accepted, First: f.Shards[n].First, Release: part.Close})
	}
	return sources, release, nil
}

// Result writes the files of a job whose shards are each in one of the parts.
func (f *Files) Result(ctx context.Context, parts []store.Part) (map[string]store.Artifact, error) {
	var full, rows store.Artifact
	g, ctx := errgroup.WithContext(ctx)
	begin := func(make func() error) { g.Go(func() error { return contain.Run(make) }) }
	begin(func() (err error) {
		full, err = f.artifact(ctx, layout.Full, parts, func(w io.Writer, src []results.Source) (int64, error) {
			return results.Concat(ctx, w, f.Schema, src, results.Full)
		})
		return err
	})
	begin(func() (err error) {
		rows, err = f.artifact(ctx, layout.Rows, parts, func(w io.Writer, src []results.Source) (int64, error) {
			return results.ConcatRows(ctx, w, f.Schema, src)
		})
		return err
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return map[string]store.Artifact{layout.Full: full, layout.Rows: rows}, nil
}

func (f *Files) artifact(ctx context.Context, name string, parts []store.Part, concat func(io.Writer, []results.Source) (int64, error)) (a store.Artifact, err error) {
	a.Key = layout.Artifact(f.Schema.JobID, name, f.Epoch)
	sources := make([]results.Source, len(parts))
	var rows int64
	for _, s := range f.Shards {
		rows += int64(s.Rows)
	}
	objects := blob.NewLazies(ctx, f.Bucket, maxOpen)
	for i, p := range parts {
		part := objects.Object(p.Key, p.Size)
		defer part.Close()
		sources[i] = part
	}
	err = f.Wait(ctx, func() (err error) {
		a.Size, err = f.write(ctx, a.Key, rows, func(w io.Writer) (int64, error) { return concat(w, sources) })
		return err
	})
	if err != nil {
		return a, fmt.Errorf("write artifact %s: %w", name, err)
	}
	return a, nil
}

// write writes an object of so many rows and returns its size in bytes.
func (f *Files) write(ctx context.Context, key string, rows int64, write func(io.Writer) (int64, error)) (int64, error) {
	w, err := f.Bucket.Create(ctx, key, layout.Parquet)
	if err != nil {
		return 0, err
	}
	defer w.Abort()
	buffered := &ranges{Writer: bufio.NewWriterSize(w, 256<<10)}
	buffered.to, _ = w.(blob.Appender)
	written, err := write(buffered)
	switch {
	case err != nil:
		return 0, err
	case written != rows:
		return 0, fmt.Errorf("%d rows, not %d", written, rows)
	}
	if err := buffered.Flush(); err != nil {
		return 0, err
	}
	info, err := w.Commit()
	return info.Size, err
}

// ranges are a columnar.RangeWriter that has the bucket copy of its objects what
// is not small.
type ranges struct {
	*bufio.Writer
	to blob.Appender // what is beneath; nil where it copies nothing
}

// copiedFrom is how long a range is that the bucket is asked for, bytes: below that
// to ask costs more than to read.
const copiedFrom = 512 << 10

// WriteRange appends some of an object.
func (r *ranges) WriteRange(src io.ReaderAt, offset, length int64) error {
	object, ok := src.(*blob.Lazy)
	if !ok || r.to == nil || length < copiedFrom {
		_, err := io.Copy(r.Writer, io.NewSectionReader(src, offset, length))
		return err
	}
	if err := r.Flush(); err != nil {
		return err
	}
	return object.AppendTo(r.to, offset, length)
}
