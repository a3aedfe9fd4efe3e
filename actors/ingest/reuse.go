package ingest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"unsafe"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

// A job with Spec.Reuse takes over rows of finished jobs. It needs to find the rows that are equal,
// without reading the answers of all jobs, and in bounded memory for any number of rows. So each such
// job writes the digests of its own rows as sorted runs, 16 bytes a row, and merges them with the
// digests of the finished jobs. The result is a list of matches, in the order of the new rows. Then
// the takeover reads the matching rows, compares their texts, and commits them shard by shard.

const (
	// digestBytes is how many bytes of an item of sorted runs are the digest; the other bytes are
	// the number of the row. Two different texts have the same digest with a probability of 2⁻⁸⁸. The
	// takeover compares the texts, too.
	digestBytes = 11
	// rowBytes is the size of the number of a row: enough for 10¹² rows.
	rowBytes = 16 - digestBytes
	// reuseMemory limits the buffers of a merge of digests, in bytes.
	reuseMemory = 16 << 20
)

// comparedText returns the part of a row that by names. types are the types of the row's ID. It is
// empty for a row without an ID.
func comparedText(by rowmill.ReuseBy, types rowmill.IDType, row *rowmill.Row) string {
	if by == rowmill.ReuseByID {
		return results.Schema{IDType: types}.IDText(row.ID)
	}
	return row.Text
}

// A digestWriter writes the digests of a job's rows.
type digestWriter struct {
	by       rowmill.ReuseBy
	types    rowmill.IDType
	object   blob.Writer
	buffered *bufio.Writer
	runs     *shard.RunsWriter
}

func (g *ingester) newDigestWriter(ctx context.Context, key string) (*digestWriter, error) {
	object, err := g.Bucket.Create(ctx, key, layout.Bytes)
	if err != nil {
		return nil, fmt.Errorf("create the digests: %w", err)
	}
	buffered := bufio.NewWriterSize(object, 64<<10)
	return &digestWriter{by: g.spec.Reuse.By, object: object, buffered: buffered, runs: shard.NewRunsWriter(buffered)}, nil
}

// add adds the digest of a row.
func (w *digestWriter) add(row *rowmill.Row) error {
	text := comparedText(w.by, w.types, row)
	if text == "" && w.by == rowmill.ReuseByID {
		return nil
	}
	sum := sha256.Sum256(unsafe.Slice(unsafe.StringData(text), len(text)))
	var item shard.RunItem
	copy(item[:digestBytes], sum[:])
	putRow(item[digestBytes:], row.Index)
	return w.runs.Add(item)
}

// commit stores the digests.
func (w *digestWriter) commit() error {
	err := w.runs.Close()
	if err == nil {
		err = w.buffered.Flush()
	}
	if err == nil {
		_, err = w.object.Commit()
	}
	if err != nil {
		return fmt.Errorf("write the digests: %w", err)
	}
	return nil
}

// putRow writes the number of a row into the first rowBytes bytes of b; getRow reads it.
func putRow(b []byte, row int64) {
	var number [8]byte
	binary.BigEndian.PutUint64(number[:], uint64(row)) //nolint:gosec // not negative
	copy(b[:rowBytes], number[8-rowBytes:])
}

func getRow(b []byte) int64 {
	var number [8]byte
	copy(number[8-rowBytes:], b[:rowBytes])
	return int64(binary.BigEndian.Uint64(number[:])) //nolint:gosec // at most 40 bits
}

// reuse cuts the whole input, finds the rows that finished jobs have run, and takes them over.
func (g *ingester) reuse(ctx context.Context, source store.Record) (m shard.Manifest, err error) {
	whole, err := g.cutWhole(ctx, source)
	if err != nil {
		return m, err
	}
	t := &takeover{ingester: g, old: *g.rec, source: layout.WholeInput(g.id), input: whole}
	t.reused = &reusedRows{ingester: g, input: archive.NewInputReader(ctx, g.Bucket, t.source, &g.spec, whole), types: whole.IDType}
	defer t.reused.close()
	if err := t.reused.findMatches(ctx); err != nil {
		return m, err
	}
	t.schema = results.Schema{Model: g.spec.Model.ID, IDColumn: g.spec.IDColumn, Embedding: g.spec.Model.Kind == rowmill.KindEmbedding}
	if m, err = t.run(ctx); err != nil {
		return m, err
	}
	return m, writeManifest(ctx, g.Bucket, g.id, m)
}

// reusedRows are the rows of finished jobs that a job takes over.
type reusedRows struct {
	*ingester
	input   *archive.InputReader // the rows of the new job
	types   rowmill.IDType       // types of their IDs
	sources []*reuseSource

	matches blob.Object // the list of matches, ordered by the new rows
	next    func() (shard.SourcedItem, error, bool)
	stop    func()
	match   shard.SourcedItem // the last match from next
	more    bool              // match was not visited
}

// A reuseSource is a finished job from which rows can be taken over.
type reuseSource struct {
	record  store.Record
	rows    *archive.CommittedRows // nil before the first match
	lookup  func(n int64, visit results.RowVisitor) error
	removed bool // the results of the job were removed
}

// findMatches writes the list of matches, and begins to read it. The newest of the finished jobs
// comes first in Reuse.Jobs, so its rows are preferred.
func (r *reusedRows) findMatches(ctx context.Context) error {
	var open []blob.Object
	defer func() {
		for _, o := range open {
			o.Close()
		}
	}()
	var runs []shard.Runs
	for _, id := range r.spec.Reuse.Jobs {
		record, err := r.Jobs.Get(ctx, id)
		if err != nil && !errors.Is(err, rowmill.ErrNotFound) {
			return fmt.Errorf("read a job to reuse its rows: %w", err)
		}
		if _, has := record.Artifacts[layout.Full]; err != nil || record.DataRemoved != nil || !has {
			continue // removed since the submission; all its rows run
		}
		digests, err := r.openDigests(ctx, record)
		if errors.Is(err, rowmill.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		r.sources, open, runs = append(r.sources, &reuseSource{record: record}), append(open, digests), append(runs, shard.Runs{Source: digests, Size: digests.Size()})
	}
	own, err := r.Bucket.Open(ctx, layout.DigestsKey(r.id, string(r.spec.Reuse.By)))
	if err != nil {
		return fmt.Errorf("open the digests of the job: %w", err)
	}
	open, runs = append(open, own), append(runs, shard.Runs{Source: own, Size: own.Size()})
	if err := r.writeMatches(ctx, runs); err != nil {
		return err
	}
	if r.matches, err = r.Bucket.Open(ctx, layout.ReuseMatchesKey(r.id)); err != nil {
		return fmt.Errorf("open the matches: %w", err)
	}
	r.next, r.stop = iter.Pull2(shard.MergeRuns(reuseMemory, rowBytes, shard.Runs{Source: r.matches, Size: r.matches.Size()}))
	return r.advance()
}

// writeMatches merges the digests. The last runs belong to the new job. A match has the numbers of
// the new row, of the source, and of the source's row.
func (r *reusedRows) writeMatches(ctx context.Context, runs []shard.Runs) error {
	_, err := blob.Write(ctx, r.Bucket, layout.ReuseMatchesKey(r.id), layout.Bytes, func(w io.Writer) error {
		out := shard.NewRunsWriter(w)
		var found shard.SourcedItem // the first row with its digest in the finished jobs
		found.Source = -1
		count := 0
		for item, err := range shard.MergeRuns(reuseMemory, digestBytes, runs...) {
			if count++; err == nil && count%checkEvery == 0 {
				err = ctx.Err()
			}
			if err != nil {
				return err
			}
			same := found.Source >= 0 && bytes.Equal(item.RunItem[:digestBytes], found.RunItem[:digestBytes])
			switch {
			case item.Source < len(runs)-1 && !same:
				found = item
			case item.Source == len(runs)-1 && same:
				var match shard.RunItem
				copy(match[:rowBytes], item.RunItem[digestBytes:])
				binary.BigEndian.PutUint16(match[rowBytes:], uint16(found.Source)) //nolint:gosec // at most MaxReuseJobs
				copy(match[rowBytes+2:], found.RunItem[digestBytes:])
				if err := out.Add(match); err != nil {
					return err
				}
			}
		}
		return out.Close()
	})
	if err != nil {
		return fmt.Errorf("find rows to reuse: %w", err)
	}
	return nil
}

// checkEvery is how many digests are merged between two checks whether the job has ended.
const checkEvery = 1 << 16

// openDigests opens the digests of a finished job. If that job wrote none, openDigests makes them
// from the inputs in its result.
func (r *reusedRows) openDigests(ctx context.Context, record store.Record) (blob.Object, error) {
	o, err := r.Bucket.Open(ctx, layout.DigestsKey(record.Job.ID, string(r.spec.Reuse.By)))
	if !errors.Is(err, rowmill.ErrNotFound) {
		return o, err
	}
	file, err := r.Bucket.Open(ctx, record.Artifacts[layout.Full].Key)
	if err != nil {
		return nil, fmt.Errorf("open the result file of job %s: %w", record.Job.ID, err)
	}
	defer file.Close()
	in, err := results.OpenInputs(file, false)
	if err != nil {
		return nil, err
	}
	key := layout.DerivedDigestsKey(r.id, record.Job.ID)
	w, err := r.newDigestWriter(ctx, key)
	if err != nil {
		return nil, err
	}
	defer w.object.Abort()
	w.types = in.Schema.IDType
	for n := range in.Rows {
		row, err := in.Row(n)
		if err == nil {
			err = w.add(&row)
		}
		if err == nil && n%checkEvery == 0 {
			err = ctx.Err()
		}
		if err != nil {
			return nil, fmt.Errorf("read the inputs of job %s: %w", record.Job.ID, err)
		}
	}
	if err := w.commit(); err != nil {
		return nil, err
	}
	return r.Bucket.Open(ctx, key)
}

// advance reads the next match.
func (r *reusedRows) advance() (err error) {
	r.match, err, r.more = r.next()
	return err
}

// eachRowOfShard calls visit for the rows of a shard that finished jobs have run, as rows of the new
// job. The caller must go through the shards in order.
func (r *reusedRows) eachRowOfShard(ctx context.Context, info shard.ManifestEntry, visit results.RowVisitor) error {
	for end := info.First + int64(info.Rows); r.more; {
		index := getRow(r.match.RunItem[:])
		if index >= end {
			return nil
		}
		if index >= info.First { // else the new job has the rows of that shard already
			if err := r.visitMatch(ctx, index, visit); err != nil {
				return err
			}
		}
		if err := r.advance(); err != nil {
			return err
		}
	}
	return nil
}

// visitMatch calls visit for the new row index, with the outcome of the matching row. It does not call
// visit if the results with that row were removed meanwhile, if the row failed, or if the rows are
// not equal.
func (r *reusedRows) visitMatch(ctx context.Context, index int64, visit results.RowVisitor) error {
	source := r.sources[binary.BigEndian.Uint16(r.match.RunItem[rowBytes:])]
	if source.removed {
		return nil
	}
	row, err := r.input.Row(index)
	if err != nil {
		return fmt.Errorf("read row %d of the input: %w", index, err)
	}
	if source.rows == nil {
		err = source.open(ctx, r.Bucket)
	}
	if err == nil {
		err = source.lookup(getRow(r.match.RunItem[rowBytes+2:]), func(old *rowmill.Row, out *rowmill.RowOutput) error {
			by := r.spec.Reuse.By
			if out.Failed() || comparedText(by, r.types, &row) != comparedText(by, source.rows.Schema.IDType, old) {
				return nil
			}
			return visit(&row, out)
		})
	}
	if errors.Is(err, rowmill.ErrNotFound) || errors.Is(err, blob.ErrLost) {
		source.removed, err = true, nil
	}
	return err
}

// open opens the result of the job.
func (s *reuseSource) open(ctx context.Context, bucket blob.Bucket) (err error) {
	if s.rows, err = archive.OpenResult(ctx, bucket, s.record.Artifacts); err != nil {
		return err
	}
	s.lookup, err = s.rows.Lookup()
	return err
}

// close closes everything that the reading has opened.
func (r *reusedRows) close() {
	r.input.Close()
	if r.stop != nil {
		r.stop()
	}
	if r.matches != nil {
		r.matches.Close()
	}
	for _, s := range r.sources {
		if s.rows != nil {
			s.rows.Close()
		}
	}
}
