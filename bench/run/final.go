package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/blob/s3"
	"github.com/rowmill/rowmill/internal/s3test"
)

// finalModel is the embedding model of final: its vectors make a large result of a small
// input.
const finalModel = "qwen-3-embedding-8b"

// final measures on an S3 server the time from the last row to the result, and the
// bytes through the node that owns the job after the input is counted; another node
// runs the rows. Rows that are answered faster than nodes merge are merged after the
// last row, so the server's pace counts.
func (b *bench) final(ctx context.Context) error {
	t := table{head: []string{"result, MiB", "last row to result, ms", "the server's copy alone, ms", "through the owner ÷ result", "memory of the owner, MiB", "of the other"}}
	for range b.rounds {
		m, err := b.finalOf(ctx)
		if err != nil {
			return err
		}
		t.add(short(float64(m.result)/(1<<20)), short(m.final.Seconds()*1e3), short(m.copied.Seconds()*1e3), short(m.moved/float64(m.result)), short(m.peaks[0]), short(m.peaks[1]))
		b.log.Info("measured", "result_mib", m.result>>20, "final", m.final, "moved_mib", int64(m.moved)>>20, "memory_mib", m.peaks)
	}
	t.report("Final: %d embeddings of 4,096 floats on S3, one node that owns and one that runs rows", b.rows)
	return nil
}

// finished holds the figures of a job's end.
type finished struct {
	result int64 // bytes
	final  time.Duration
	copied time.Duration // time for the server to copy an object of the same size
	moved  float64       // bytes through the owner
	peaks  [2]float64    // anonymous memory of the owner and of the other node, MiB
}

func (b *bench) finalOf(ctx context.Context) (m finished, err error) {
	in, err := dataset{rows: b.rows, bytes: 100, seed: 7}.make(b.dir)
	if err != nil {
		return m, err
	}
	l, err := b.startLab(ctx, []string{"api", "engines"}, func(string) (*process, string, error) {
		return b.startNull(ctx, "-tokens", "20", "-dimension", "4096", "-models", finalModel, "-delay", b.delay.String(), "-slots", strconv.Itoa(b.slots))
	})
	if err != nil {
		return m, err
	}
	defer l.end()
	owner := l.nodes[0]
	s := b.fileOf(in)
	s.Model = finalModel
	job, err := owner.submit(ctx, s)
	if err != nil {
		return m, err
	}
	if err := owner.counted(ctx, job, b.rows); err != nil {
		return m, err
	}
	before, err := owner.metrics(ctx)
	if err != nil {
		return m, err
	}
	ofOwner, ofOther := owner.watchMemory(), l.nodes[1].watchMemory()
	_, err = owner.wait(ctx, job, 100*time.Millisecond)
	m.peaks = [2]float64{float64(ofOwner()) / (1 << 20), float64(ofOther()) / (1 << 20)}
	if err != nil {
		return m, err
	}
	after, err := owner.metrics(ctx)
	if err != nil {
		return m, err
	}
	const moved = "rowmill_s3_bytes_total"
	m.moved = tally(after).sum(moved) - tally(before).sum(moved)
	m.final = time.Duration(after["rowmill_finalise_seconds_sum"] * float64(time.Second))
	url, err := owner.resultsURL(ctx, job)
	if err != nil {
		return m, err
	}
	if m.result, err = b.checkURL(ctx, owner, url, job, b.rows); err != nil {
		return m, err
	}
	m.copied, err = l.copyObject(ctx, m.result)
	return m, err
}

// copyObject makes the S3 server copy an object of a size in parts, as nodes do, and
// returns the time. A result takes at least this time if its parts are not copied
// before the last row.
func (l *lab) copyObject(ctx context.Context, size int64) (time.Duration, error) {
	bucket, err := s3.Open(ctx, s3.Config{
		Endpoint: l.s3.Endpoint, Region: s3test.Region, Bucket: l.s3.Bucket, AccessKey: l.s3.AccessKey, SecretKey: l.s3.SecretKey,
	})
	if err != nil {
		return 0, fmt.Errorf("open bucket: %w", err)
	}
	defer func() { _ = bucket.Close() }() // nothing is open
	objects, err := bucket.List(ctx, "")
	if err != nil {
		return 0, fmt.Errorf("list bucket: %w", err)
	}
	at := slices.IndexFunc(objects, func(o blob.ObjectInfo) bool { return o.Size == size })
	if at < 0 {
		return 0, fmt.Errorf("no object has the %d bytes of the result", size)
	}
	begun := time.Now()
	from, err := bucket.Open(ctx, objects[at].Key)
	if err != nil {
		return 0, fmt.Errorf("open result: %w", err)
	}
	defer from.Close()
	w, err := bucket.Create(ctx, "copy", layout.Parquet)
	if err != nil {
		return 0, fmt.Errorf("copy result: %w", err)
	}
	defer w.Abort()
	to, ok := w.(blob.Appender)
	if !ok {
		return 0, errors.New("the bucket cannot copy objects")
	}
	to.Expect(size)
	if err := to.Append(from, 0, size); err != nil {
		return 0, fmt.Errorf("copy result: %w", err)
	}
	_, err = w.Commit()
	return time.Since(begun), err
}
