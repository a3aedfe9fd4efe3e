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

// A Compaction is the task to make one object from parts of a job. Any node can run it,
// with the same result. No record names the object before the owner knows that the
// object exists. If a compaction is lost, its object is removed together with the parts
// of the job.
type Compaction struct {
	Make   string // kind of the object: MakeMerge, MakeJoin, MakeFull or MakeRows
	Key    string // key of the object: a new one for each attempt
	Schema results.Schema
	First  int64        // number of the object's first row in the job
	Rows   int64        // number of rows of the object
	Parts  []store.Part // the parts from which the object is made
}

// Kinds of objects. All except MakeMerge are made from complete parts, in row order.
const (
	MakeMerge = "merge"     // the complete part of a shard, from the parts of the shard
	MakeJoin  = "join"      // one part, from the complete parts of consecutive shards
	MakeFull  = layout.Full // the artifact with all results, from the parts of all shards
	MakeRows  = layout.Rows // the artifact that finds single rows, from the parts of all shards
)

// Heavy reports whether the compaction decodes parts or reads all their bytes. A node
// should run few such compactions at a time.
func (c *Compaction) Heavy() bool { return c.Make == MakeMerge || c.Make == MakeJoin }

// Run makes the object and returns its size in bytes. wait calls the work again after a
// temporary error.
func (c *Compaction) Run(ctx context.Context, bucket blob.Bucket, wait RetryFunc) (size int64, err error) {
	ctx = context.WithValue(ctx, kindKey{}, c.Make)
	err = wait(ctx, func() error {
		size, err = c.run(ctx, bucket)
		return err
	})
	return size, err
}

// kindKey is the key of a context value. The value is the kind of object that is being
// made under the context.
type kindKey struct{}

// KindFromContext returns the kind of object that is being made under ctx; empty if ctx belongs
// to no compaction.
func KindFromContext(ctx context.Context) string {
	kind, _ := ctx.Value(kindKey{}).(string)
	return kind
}

// run tries once to make the object. If parts cannot be read, the error is an
// archive.LostPartsError.
func (c *Compaction) run(ctx context.Context, bucket blob.Bucket) (int64, error) {
	info, err := c.makeObject(ctx, bucket)
	if err == nil {
		return info.Size, archive.VerifyWritten(ctx, bucket, info)
	}
	return 0, archive.FindCause(ctx, bucket, c.Parts, err)
}

// makeObject writes the object and returns its description.
func (c *Compaction) makeObject(ctx context.Context, bucket blob.Bucket) (info blob.ObjectInfo, err error) {
	if c.Make == MakeMerge {
		sources, release, err := openPartSources(ctx, bucket, c.First, c.Parts, nil)
		defer release()
		if err != nil {
			return info, err
		}
		return writeObject(ctx, bucket, c.Key, c.Rows, c.size(), func(w io.Writer) (int64, error) {
			return results.MergeParts(ctx, w, c.Schema, sources)
		})
	}
	objects := blob.NewLazyObjects(ctx, bucket, maxOpen)
	sources := make([]results.Source, len(c.Parts))
	for i, p := range c.Parts {
		part := objects.Object(p.Key, p.Size)
		defer part.Close()
		sources[i] = part
	}
	return writeObject(ctx, bucket, c.Key, c.Rows, c.size(), func(w io.Writer) (int64, error) {
		switch c.Make {
		case MakeJoin:
			return results.JoinParts(ctx, w, c.Schema, c.First, sources)
		case MakeFull:
			return results.ConcatParts(ctx, w, c.Schema, sources, results.Full)
		case MakeRows:
			return results.ConcatRows(ctx, w, c.Schema, sources)
		}
		return 0, fmt.Errorf("this version cannot make an object of kind %q", c.Make)
	})
}

// openPartSources returns a source for each part of a shard. A source has only the rows that
// the store accepted from the part. If among is not nil, a source has only rows that
// are also in among, and a part without such rows gets no source. first is the number
// of the shard's first row. The caller must call release, also after an error.
func openPartSources(ctx context.Context, bucket blob.Bucket, first int64, parts []store.Part, among *roaring.Bitmap) (sources []results.PartSource, release func(), err error) {
	objects := blob.NewLazyObjects(ctx, bucket, maxOpen)
	var open []*blob.LazyObject
	release = func() {
		for _, o := range open {
			o.Close()
		}
	}
	for _, p := range parts {
		accepted, err := archive.AcceptedRows(p)
		if err != nil {
			return nil, release, err
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

// writeObject creates an object and lets the function write fill it. It returns an error if
// the number of written rows is not rows. sizeHint is the approximate size of the object in
// bytes.
func writeObject(ctx context.Context, bucket blob.Bucket, key string, rows, sizeHint int64, write func(io.Writer) (int64, error)) (info blob.ObjectInfo, err error) {
	w, err := bucket.Create(ctx, key, layout.Parquet)
	if err != nil {
		return info, err
	}
	defer w.Abort()
	buffered := &rangeWriter{Writer: bufio.NewWriterSize(w, 256<<10)}
	if to, ok := w.(blob.Appender); ok {
		buffered.to = to
		to.Expect(sizeHint)
	}
	written, err := write(buffered)
	switch {
	case err != nil:
		return info, err
	case written != rows:
		return info, fmt.Errorf("the object has %d rows, not %d", written, rows)
	}
	if err := buffered.Flush(); err != nil {
		return info, err
	}
	return w.Commit()
}

// size returns the total size of the parts in bytes. The new object is at most about as
// large.
func (c *Compaction) size() (size int64) {
	for _, p := range c.Parts {
		size += p.Size
	}
	return size
}

// rangeWriter writes an object, as a columnar.RangeWriter. The bucket itself copies long
// ranges of other objects, so that these bytes do not pass through this node.
type rangeWriter struct {
	*bufio.Writer
	to blob.Appender // the object being written; nil if the bucket cannot copy ranges
}

var _ columnar.RangeWriter = (*rangeWriter)(nil)

// copiedFrom is the size in bytes of the shortest range that the bucket copies itself.
// A shorter range is cheaper to read and write.
const copiedFrom = 512 << 10

// WriteRange appends length bytes of src from offset.
func (r *rangeWriter) WriteRange(src io.ReaderAt, offset, length int64) error {
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
