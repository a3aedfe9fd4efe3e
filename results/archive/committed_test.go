package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// counted counts the bytes that are read from its objects.
type counted struct {
	blob.Bucket
	bytes atomic.Int64
}

type countedObject struct {
	blob.Object
	bytes *atomic.Int64
}

func (c *counted) Open(ctx context.Context, key string) (blob.Object, error) {
	o, err := c.Bucket.Open(ctx, key)
	if err != nil {
		return nil, err
	}
	return countedObject{o, &c.bytes}, nil
}

func (o countedObject) ReadAt(p []byte, at int64) (int, error) {
	n, err := o.Object.ReadAt(p, at)
	o.bytes.Add(int64(n))
	return n, err
}

// shardsOf visits shards of ten rows each, in order, and returns the rows with
// their outputs.
func (w *world) shardsOf(c *CommittedRows, shards int) (rows []string) {
	w.Helper()
	for n := range shards {
		must.Succeed(w, c.EachRowOfShard(w.Context(), n, int64(10*n), 10, func(row *rowmill.Row, out *rowmill.RowOutput) error {
			if row.Index/10 != int64(n) {
				return fmt.Errorf("row %d is not in shard %d", row.Index, n)
			}
			rows = append(rows, fmt.Sprint(row.Index, " ", row.Text, " ", out.Text))
			return nil
		}))
	}
	return rows
}

// The result of many shards must be read as few times as the result of few
// shards, footers included.
func TestCommitted_ReadsAResultOnce(t *testing.T) {
	t.Parallel()
	const shards = 150
	w := setup(t, 10*shards)
	var parts []store.Part
	var want []string
	for n := range shards {
		var texts []string
		for i := range 10 {
			texts = append(texts, fmt.Sprint("answer ", 10*n+i))
			want = append(want, fmt.Sprintf("%[1]d input %[1]d answer %[1]d", 10*n+i))
		}
		parts = append(parts, w.part(n, int64(10*n), texts...))
	}
	w.finish(parts...)
	size := int64(0)
	for _, a := range w.job.Artifacts {
		size += a.Size
	}
	bucket := &counted{Bucket: w.bucket}
	c := must.Get(New(w, bucket, slog.New(slog.DiscardHandler)).OpenCommitted(t.Context(), w.job))(t)
	defer c.Close()
	if got := w.shardsOf(c, shards); !slices.Equal(got, want) {
		t.Errorf("%d rows, the first %q, want %d", len(got), got[:min(len(got), 3)], len(want))
	}
	if read := bucket.bytes.Load(); read > 3*size {
		t.Errorf("%d bytes were read of files of %d", read, size)
	}
}

// Shards without committed rows have no parts.
func TestCommitted_OfPartsHasGaps(t *testing.T) {
	t.Parallel()
	w := setup(t, 60)
	w.parts = w.committed(w.part(1, 12, "m", "n"), w.part(4, 40, "p"), w.part(1, 10, "k"))
	w.parts[0].Totals.TruncatedRows, w.parts[1].Totals.TruncatedRows = 2, 1
	c := must.Get(w.OpenCommitted(t.Context(), w.job))(t)
	defer c.Close()
	want := []string{"10 input 10 k", "12 input 12 m", "13 input 13 n", "40 input 40 p"}
	if got := w.shardsOf(c, 6); !slices.Equal(got, want) {
		t.Errorf("the rows are %q", got)
	}
	if one, four, five := c.TruncatedRows(1), c.TruncatedRows(4), c.TruncatedRows(5); one != 3 || four != 0 || five != 0 {
		t.Errorf("%d, %d and %d rows were cut", one, four, five)
	}
}

// A shard that was overwritten by a node with other settings must not be shown
// as the input of rows, and must not prevent reading the committed rows.
func TestPartial_OverwrittenInput(t *testing.T) {
	t.Parallel()
	w := setup(t, 20)
	put := func(key string, write func(io.Writer) error) { w.write(key, write) }
	shardOf := func(first int64, rows int) func(io.Writer) error {
		return func(to io.Writer) error {
			s := shard.NewWriter(to, first, false)
			for i := range rows {
				if err := s.Add(fmt.Sprint("input ", first+int64(i)), rowmill.ID{}); err != nil {
					return err
				}
			}
			return s.Close()
		}
	}
	put(layout.ShardKey(job, 0), shardOf(0, 10))
	put(layout.ShardKey(job, 1), shardOf(5, 10)) // from a node that splits into shards of five rows
	put(layout.ManifestKey(job), func(to io.Writer) error {
		return json.NewEncoder(to).Encode(shard.Manifest{Rows: 20, Shards: []shard.ManifestEntry{{First: 0, Rows: 10}, {First: 10, Rows: 10}}})
	})
	in := must.Get(w.openInput(t.Context(), &w.job))(t)
	defer in.Close()
	if row, err := in.Row(9); err != nil || row.Text != "input 9" {
		t.Errorf("row 9 is %q, %v", row.Text, err)
	}
	for _, n := range []int64{10, 14, 20} {
		if row, err := in.Row(n); !errors.Is(err, results.ErrInputRemoved) {
			t.Errorf("row %d is %q, %v", n, row.Text, err)
		}
	}
	w.parts = w.committed(w.part(1, 12, "m"))
	w.job.Job.Status, w.job.Artifacts = rowmill.StatusCancelled, map[string]store.Artifact{}
	d := must.Get(w.OpenPartial(t.Context(), w.job))(t)
	defer d.Close()
	var out bytes.Buffer
	must.Succeed(t, results.WriteJSON(t.Context(), &out, d, d.Schema, results.FileVariant{Inputs: true}))
	var got struct{ Inputs, Outputs []*string }
	must.Succeed(t, json.Unmarshal(out.Bytes(), &got))
	for i, input := range got.Inputs {
		if there := i < 10 || i == 12; (input != nil) != there || (got.Outputs[i] != nil) != (i == 12) {
			t.Errorf("row %d has the input %v and the output %v", i, input, got.Outputs[i])
		}
	}
	if len(got.Inputs) != 20 {
		t.Errorf("%d rows", len(got.Inputs))
	}
}
