package commit

import (
	"bufio"
	"context"
	"fmt"
	"io"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/columnar"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

// An Errand is an object to be made of parts of a job. Whichever node runs it, it
// makes the same; nothing refers to the object before the owner has heard that it is
// there, so that one whose errand is lost is waste, which goes with the job's parts.
type Errand struct {
	Make   string // what the object is
	Key    string // of it: a new one for each try
	Schema results.Schema
	First  int64 // row
	Rows   int64
	Parts  []store.Part
}

// What errands make. All but the first are made of complete parts, in order.
const (
	MakeMerge = "merge"     // the complete part of a shard, of its parts
	MakeJoin  = "join"      // one part of those of consecutive shards
	MakeFull  = layout.Full // an artifact, of the parts of all shards
	MakeRows  = layout.Rows // likewise
)

// Heavy reports whether parts are taken apart or all bytes read, so that few such
// errands should run on a node at a time.
func (e *Errand) Heavy() bool { return e.Make == MakeMerge || e.Make == MakeJoin }

// Run makes the object and returns its size in bytes. wait repeats what may fail for
// a while.
func (e *Errand) Run(ctx context.Context, bucket blob.Bucket, wait Wait) (size int64, err error) {
	ctx = context.WithValue(ctx, making{}, e.Make)
	err = wait(ctx, func() error {
		size, err = e.run(ctx, bucket)
		return err
	})
	return size, err
}

type making struct{}

// Making is the kind of object that an errand makes with ctx, empty where none does.
func Making(ctx context.Context) string {
	kind, _ := ctx.Value(making{}).(string)
	return kind
}

// run makes the object once. If that fails because parts cannot be read, the error is a
// LostError.
func (e *Errand) run(ctx context.Context, bucket blob.Bucket) (int64, error) {
	info, err := e.make(ctx, bucket)
	if err == nil {
		return info.Size, archive.ReadBack(ctx, bucket, info)
	}
	return 0, archive.Explain(ctx, bucket, e.Parts, err)
}

func (e *Errand) make(ctx context.Context, bucket blob.Bucket) (info blob.Info, err error) {
	if e.Make == MakeMerge {
		sources, release, err := sourcesOf(ctx, bucket, e.First, e.Rows, e.Parts, nil)
		defer release()
		if err != nil {
			return info, err
		}
		return write(ctx, bucket, e.Key, e.Rows, e.size(), func(w io.Writer) (int64, error) {
			return results.Merge(ctx, w, e.Schema, sources)
		})
	}
	objects := blob.NewLazyObjects(ctx, bucket, maxOpen)
	sources := make([]results.Source, len(e.Parts))
	for i, p := range e.Parts {
		part := objects.Object(p.Key, p.Size)
		defer part.Close()
		sources[i] = part
	}
	return write(ctx, bucket, e.Key, e.Rows, e.size(), func(w io.Writer) (int64, error) {
		switch e.Make {
		case MakeJoin:
			return results.Join(ctx, w, e.Schema, e.First, sources)
		case MakeFull:
			return results.Concat(ctx, w, e.Schema, sources, results.Full)
		case MakeRows:
			return results.ConcatRows(ctx, w, e.Schema, sources)
		}
		return 0, fmt.Errorf("nobody here knows how to make %q", e.Make)
	})
}

// sourcesOf opens parts of a shard, with the rows that each is accepted for, or those
// of them that are among some; parts without any are left out. release is to be called
// after an error too.
func sourcesOf(ctx context.Context, bucket blob.Bucket, first, rows int64, parts []store.Part, among *roaring.Bitmap) (sources []results.PartSource, release func(), err error) {
	objects := blob.NewLazyObjects(ctx, bucket, maxOpen)
	var open []*blob.LazyObject
	release = func() {
		for _, o := range open {
			o.Close()
		}
	}
	for _, p := range parts {
		accepted := roaring.New()
		if p.Complete {
			accepted.AddRange(0, uint64(rows)) //nolint:gosec // a number of rows
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
		sources = append(sources, results.PartSource{Source: part, Accept: accepted, First: first, Release: part.Close})
	}
	return sources, release, nil
}

// write writes an object of so many rows, of about so many bytes.
func write(ctx context.Context, bucket blob.Bucket, key string, rows, about int64, write func(io.Writer) (int64, error)) (info blob.Info, err error) {
	w, err := bucket.Create(ctx, key, layout.Parquet)
	if err != nil {
		return info, err
	}
	defer w.Abort()
	buffered := &ranges{Writer: bufio.NewWriterSize(w, 256<<10)}
	if to, ok := w.(blob.Appender); ok {
		buffered.to = to
		to.Expect(about)
	}
	written, err := write(buffered)
	switch {
	case err != nil:
		return info, err
	case written != rows:
		return info, fmt.Errorf("%d rows, not %d", written, rows)
	}
	if err := buffered.Flush(); err != nil {
		return info, err
	}
	return w.Commit()
}

// size is the size of all parts, in bytes: the object is about as large, or smaller.
func (e *Errand) size() (size int64) {
	for _, p := range e.Parts {
		size += p.Size
	}
	return size
}

// ranges are a columnar.RangeWriter that has the bucket copy of its objects what
// is not small.
type ranges struct {
	*bufio.Writer
	to blob.Appender // what is beneath; nil where it copies nothing
}

var _ columnar.RangeWriter = (*ranges)(nil)

// copiedFrom is how long a range is that the bucket is asked for, bytes: below that
// to ask costs more than to read.
const copiedFrom = 512 << 10

// WriteRange appends some of an object.
func (r *ranges) WriteRange(src io.ReaderAt, offset, length int64) error {
	object, ok := src.(*blob.LazyObject)
	if !ok || r.to == nil || length < copiedFrom {
		_, err := io.Copy(r.Writer, io.NewSectionReader(src, offset, length))
		return err
	}
	if err := r.Flush(); err != nil {
		return err
	}
	return object.AppendTo(r.to, offset, length)
}
