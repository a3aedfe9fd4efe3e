package s3

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/commit"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/dir"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/s3test"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// This test makes the result of a job on a store that requires parts of equal
// length, as Cloudflare R2 does: parts are joined, and the result is made from
// the joined parts. It must have the same bytes as in a directory.
func TestResultOnPartsOfOneLength(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	p, remote := through(t, server, nil)
	folder, err := dir.Open(dir.Config{Root: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = folder.Close() })
	want := makeResult(t, folder)
	p.inject(equalParts())
	got := makeResult(t, remote)
	if !bytes.Equal(got, want) {
		t.Errorf("the result has %d bytes, want the %d that it has in a directory", len(got), len(want))
	}
	if n := p.count(copyObject); n < 10 {
		t.Errorf("%d parts were copied by the server: the test proves nothing", n)
	}
	if found := remote.Limits(); len(found) != 1 || !strings.Contains(found[0].Answer, "same length") {
		t.Errorf("found: %+v", found)
	}
}

// makeResult makes the result of a job of six shards of about 6 MiB, from two
// joins of three shards, and reads it.
func makeResult(t *testing.T, bucket blob.Bucket) []byte {
	t.Helper()
	const shards, rows = 6, 100
	schema := results.Schema{JobID: "job-1", Model: "m"}
	letters := rand.NewChaCha8([32]byte{2})
	errand := func(kind, key string, first int64, parts []store.Part) store.Part {
		t.Helper()
		e := commit.Errand{Make: kind, Key: key, Schema: schema, First: first, Rows: rows * int64(len(parts)), Parts: parts}
		if kind != commit.MakeJoin {
			e.Rows = shards * rows
		}
		size, err := e.Run(t.Context(), bucket, func(_ context.Context, do func() error) error { return do() })
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		return store.Part{Key: key, Rows: e.Rows, Size: size, Complete: true}
	}
	var parts, joined []store.Part
	for n := range shards {
		parts = append(parts, writePart(t, bucket, schema, n, rows, letters))
	}
	for n := 0; n < shards; n += 3 {
		joined = append(joined, errand(commit.MakeJoin, fmt.Sprintf("jobs/job-1/parts/joined-%d", n), int64(n*rows), parts[n:n+3]))
	}
	full := errand(commit.MakeFull, "jobs/job-1/results/full", 0, joined)
	content, err := get(t.Context(), bucket, full.Key)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// writePart writes a complete part of a shard, with answers that do not
// compress.
func writePart(t *testing.T, bucket blob.Bucket, schema results.Schema, n, rows int, letters *rand.ChaCha8) store.Part {
	t.Helper()
	key := layout.Part("job-1", n, 1)
	w, err := bucket.Create(t.Context(), key, layout.Parquet)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	part, err := results.NewPartWriter(w, schema)
	for i := 0; err == nil && i < rows; i++ {
		text := make([]byte, 32<<10)
		_, _ = letters.Read(text) // never fails
		err = part.Add(&rowmill.Row{Index: int64(n*rows + i), Text: "in"}, &rowmill.Output{Text: fmt.Sprintf("%x", text), Attempts: 1})
	}
	if err == nil {
		err = part.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	info, err := w.Commit()
	if err != nil {
		t.Fatal(err)
	}
	return store.Part{Key: key, Rows: int64(rows), Size: info.Size, Complete: true}
}
