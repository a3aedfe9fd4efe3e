package http

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// done is a row with its output.
type done struct {
	id  rowmill.ID
	out rowmill.RowOutput
}

// answers returns outputs of rows. An empty text is a failed row.
func answers(texts ...string) (rows []done) {
	for i, text := range texts {
		out := rowmill.RowOutput{
			Text: text, Score: 50 + float64(i), HasScore: true, Finish: rowmill.FinishStop,
			InputTokens: int64(10 + i), OutputTokens: int64(20 + i), Engine: "sim", Seconds: 0.25, Attempts: 1,
		}
		if text == "" {
			out = rowmill.RowOutput{InputTokens: 3, Engine: "sim", Attempts: 5, Err: &rowmill.RowError{
				Code: rowmill.RowSchemaViolation, Message: "is no object", Raw: "raw",
			}}
		}
		rows = append(rows, done{out: out})
	}
	return rows
}

func (w *world) write(key string, write func(io.Writer) error) store.Artifact {
	w.Helper()
	writer, err := w.bucket.Create(w.Context(), key, layout.Parquet)
	must.Succeed(w, err)
	defer writer.Abort()
	must.Succeed(w, write(writer))
	info, err := writer.Commit()
	must.Succeed(w, err)
	return store.Artifact{Key: key, Size: info.Size}
}

// part writes rows, numbered from first, as a part of a shard.
func (w *world) part(f store.Fence, schema results.Schema, shard int, first int64, rows []done, key string) store.Part {
	w.Helper()
	key = "jobs/" + f.JobID + "/parts/" + key
	part := store.Part{Key: key, Shard: shard, Rows: int64(len(rows)), Complete: true}
	part.Totals.Rows = part.Rows
	made := w.write(key, func(to io.Writer) error {
		p, err := results.NewPartWriter(to, schema)
		if err != nil {
			return err
		}
		for i, row := range rows {
			if row.out.Failed() {
				part.Totals.Failed++
			}
			input := rowmill.Row{Index: first + int64(i), Text: fmt.Sprintf("input %d", first+int64(i)), ID: row.id}
			if err := p.Add(&input, &row.out); err != nil {
				return err
			}
		}
		return p.Close()
	})
	part.Size = made.Size
	return part
}

func schemaOf(record store.Record, kind rowmill.IDKind) results.Schema {
	return results.Schema{
		JobID: record.Job.ID, Output: record.Spec.Output, Model: record.Spec.Model.ID, IDColumn: record.Spec.IDColumn, IDType: rowmill.IDType{IDKind: kind},
		Embedding: record.Spec.Model.Kind == rowmill.KindEmbedding,
	}
}

// running creates a job and starts it. One "a" in inputs means that many rows.
func (w *world) running(body string, rows int64) store.Fence {
	w.Helper()
	inputs := strings.Repeat(`,"a"`, int(rows))
	if rows > 0 {
		body = strings.Replace(body, `"inputs":["a"]`, `"inputs":[`+inputs[1:]+`]`, 1)
	}
	return w.start(w.submitted(body), rows)
}

// start makes a stored job run.
func (w *world) start(id string, rows int64) store.Fence {
	w.Helper()
	f := w.claim(id)
	w.update(f, func(r *store.Record) error {
		r.Job.NumRows, r.Shards = &rows, 1
		if err := r.Job.Become(rowmill.StatusStarting, time.Now()); err != nil {
			return err
		}
		return r.Job.Become(rowmill.StatusRunning, time.Now())
	})
	return f
}

func (w *world) commit(f store.Fence, parts ...store.Part) {
	w.Helper()
	must.Succeed(w, w.store.CommitParts(w.Context(), f, parts))
}

// succeeded creates a job and ends it with outputs for its rows.
func (w *world) succeeded(body string, rows []done) string {
	w.Helper()
	f := w.running(body, int64(len(rows)))
	w.succeed(f, rows)
	return f.JobID
}

// succeed ends a job with outputs for its rows.
func (w *world) succeed(f store.Fence, rows []done) {
	w.Helper()
	schema := schemaOf(w.record(f.JobID), kindOfRows(rows))
	part := w.part(f, schema, 0, 0, rows, "0.parquet")
	must.Succeed(w, w.store.CommitParts(w.Context(), f, []store.Part{part}))
	source, err := w.bucket.Open(w.Context(), part.Key)
	must.Succeed(w, err)
	defer source.Close()
	artifacts := map[string]store.Artifact{
		layout.Full: w.write("jobs/"+f.JobID+"/results/full.parquet", func(to io.Writer) error {
			_, err := results.ConcatParts(w.Context(), to, schema, []results.Source{source}, results.Full)
			return err
		}),
		layout.Rows: w.write("jobs/"+f.JobID+"/results/rows.parquet", func(to io.Writer) error {
			_, err := results.ConcatRows(w.Context(), to, schema, []results.Source{source})
			return err
		}),
	}
	_, err = w.store.Finish(w.Context(), f, func(r *store.Record) error {
		r.Artifacts = artifacts
		return r.Job.Become(rowmill.StatusSucceeded, time.Now())
	})
	must.Succeed(w, err)
}

func kindOfRows(rows []done) rowmill.IDKind {
	for _, row := range rows {
		if row.id.Kind != rowmill.IDNull {
			return row.id.Kind
		}
	}
	return rowmill.IDNull
}
