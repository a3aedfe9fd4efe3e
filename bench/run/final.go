package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/blob/s3"
	"github.com/rowmill/rowmill/internal/s3test"
)

// final measures on an S3 server the time from the last row to the result, and the
// bytes through the node that owns the job after the input is counted; another node
// runs the rows. It uses shards of texts in the default size, and in a size whose parts
// an S3 server can copy. Parts gather long enough to need no merge.
func (b *bench) final(ctx context.Context, rows int64) error {
	gathered := []string{"jobs.part_interval=1m", "jobs.part_bytes=2GiB", "jobs.memory_budget=1GiB"}
	texts := dataset{rows: rows, bytes: 8000, seed: 7}
	return b.finals(ctx, fmt.Sprintf("%d rows of %d B", rows, texts.bytes),
		finalLoad{name: "of 8 MiB", data: texts, model: model, settings: gathered},
		finalLoad{name: "of 32 MiB", data: texts, model: model, settings: append(gathered, "jobs.shard_bytes=32MiB")})
}

// finalEmbeddings measures the same for a large result of a small input, with default
// settings. form may slow down the server: rows that are answered faster than nodes
// merge are merged after the last row.
func (b *bench) finalEmbeddings(ctx context.Context, rows int64, form rowPath) error {
	return b.finals(ctx, fmt.Sprintf("%d embeddings of 4,096 floats", rows), finalLoad{
		name: "of 8 MiB", data: dataset{rows: rows, bytes: 100, seed: 7}, model: "qwen-3-embedding-8b",
		null: []string{"-delay", form.delay.String(), "-slots", strconv.Itoa(form.slots)},
	})
}

// A finalLoad is a job of final.
type finalLoad struct {
	name     string // describes its shards
	data     dataset
	model    string
	null     []string // additional arguments for the server
	settings []string
}

func (b *bench) finals(ctx context.Context, what string, loads ...finalLoad) error {
	b.roles = []string{"api", "engines"}
	t := table{head: []string{"shards", "result, MiB", "last row to result, ms", "of it the server's copy alone, ms", "through the owner, MiB", "÷ result", "merges by the owner", "elsewhere", "their seconds", "copies by the server", "memory of the owner, MiB", "of the other"}}
	for _, load := range loads {
		for range b.rounds {
			m, err := b.finalOf(ctx, load)
			if err != nil {
				return fmt.Errorf("shards %s: %w", load.name, err)
			}
			t.add(load.name, short(float64(m.result)/(1<<20)), short(m.final.Seconds()*1e3), short(m.copied.Seconds()*1e3), short(m.moved/(1<<20)), short(m.moved/float64(m.result)), short(m.merges), short(m.elsewhere), short(m.seconds), short(m.copies), short(m.peaks[0]), short(m.peaks[1]))
			b.log.Info("measured", "shards", load.name, "result_mib", m.result>>20, "final", m.final, "moved_mib", int64(m.moved)>>20, "job", m.wall, "memory_mib", m.peaks)
		}
	}
	fmt.Printf("\nFinal: %s on S3, one node that owns and one that runs rows\n\n", what)
	t.print(os.Stdout)
	return nil
}

// finished holds the figures of a job's end.
type finished struct {
	result int64 // bytes
	final  time.Duration
	copied time.Duration // time for the server to copy an object of the same size
	moved  float64       // bytes through the owner
	merges float64       // merges by the owner
	copies float64       // copy requests

	elsewhere float64 // merges by the other node
	seconds   float64 // time of these merges

	wall  time.Duration // time of the job after the input was counted
	peaks [2]float64    // anonymous memory of the owner and of the other node, MiB
}

func (b *bench) finalOf(ctx context.Context, load finalLoad) (m finished, err error) {
	rows := load.data.rows
	in, err := load.data.make(b.dir)
	if err != nil {
		return m, err
	}
	l, err := b.startLab(ctx, 2, func(string) (*process, string, error) {
		return b.startNull(ctx, append([]string{"-tokens", "20", "-dimension", "4096", "-models", load.model}, load.null...)...)
	}, load.settings...)
	if err != nil {
		return m, err
	}
	defer l.end()
	owner := l.nodes[0]
	through := func() (float64, error) {
		values, err := owner.metrics(ctx)
		return tally(values).sum("rowmill_s3_bytes_total"), err
	}
	job, err := owner.submit(ctx, submission{
		Inputs: b.fileBase + filepath.Base(in), Model: load.model, Column: "text", IDColumn: "id", Priority: 1,
	})
	if err != nil {
		return m, err
	}
	if err := owner.counted(ctx, job, rows); err != nil {
		return m, err
	}
	before, err := through()
	if err != nil {
		return m, err
	}
	begun, ofOwner, ofOther := time.Now(), owner.watchMemory(), l.nodes[1].watchMemory()
	_, err = owner.wait(ctx, job, 100*time.Millisecond)
	m.wall, m.peaks = time.Since(begun), [2]float64{float64(ofOwner()) / (1 << 20), float64(ofOther()) / (1 << 20)}
	if err != nil {
		return m, err
	}
	after, err := through()
	if err != nil {
		return m, err
	}
	m.moved = after - before
	values, err := owner.metrics(ctx)
	if err != nil {
		return m, err
	}
	m.merges = values["rowmill_merge_seconds_count"]
	other, err := l.nodes[1].metrics(ctx)
	if err != nil {
		return m, err
	}
	for _, of := range []map[string]float64{values, other} {
		for name, n := range of {
			if strings.HasPrefix(name, "rowmill_s3_requests_total") && strings.Contains(name, `"CopyObject"`) {
				m.copies += n
			}
		}
	}
	m.elsewhere, m.seconds = other["rowmill_merge_seconds_count"], other["rowmill_merge_seconds_sum"]
	m.final = time.Duration(values["rowmill_finalise_seconds_sum"] * float64(time.Second))
	out := filepath.Join(b.dir, "result.parquet")
	defer os.Remove(out)
	if err := owner.download(ctx, job, out); err != nil {
		return m, err
	}
	if err := checkResult(out, job, rows); err != nil {
		return m, err
	}
	info, err := os.Stat(out)
	if err != nil {
		return m, fmt.Errorf("look at result: %w", err)
	}
	m.result = info.Size()
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
	at := slices.IndexFunc(objects, func(o blob.Info) bool { return o.Size == size })
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
