package actors_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

// raw returns the specification of a batch with so many requests.
func (b *rig) raw(rows int) rowmill.Spec {
	b.t.Helper()
	var lines strings.Builder
	for i := range rows {
		fmt.Fprintf(&lines, `{"custom_id":"id-%d","method":"POST","url":"/v1/p","body":{"model":"m","n":%d}}`+"\n", i, i)
	}
	key := "spooled/" + rowmill.NewJobID()
	w, err := b.cfg.Blob.Create(b.t.Context(), key, layout.NDJSON)
	if err == nil {
		_, err = w.Write([]byte(lines.String()))
	}
	if err == nil {
		_, err = w.Commit()
	}
	must.Succeed(b.t, err)
	spec := rowmill.Spec{Model: writer, Spooled: key, ColumnChoice: rowmill.ColumnChoice{IDColumn: "custom_id"}}
	spec.Model.Kind = rowmill.KindRaw
	spec.Raw = &rowmill.RawBatch{Dialect: rowmill.DialectOpenAI, Path: "/v1/p", Window: "24h"}
	return spec
}

// lines returns a text for each row of a job: its id with "ok", or with the code of
// the failure and the server's answer.
func (b *rig) lines(rec store.Record) (lines []string) {
	b.t.Helper()
	must.Get(archive.New(b.store, b.cfg.Blob, slog.New(slog.DiscardHandler)).MakeLinesFile(b.t.Context(), rec, "lines", func(_ io.Writer, each func(results.RowVisitor) error) error {
		return each(func(row *rowmill.Row, out *rowmill.RowOutput) error {
			line := row.ID.Text + " ok"
			if out.Failed() {
				line = strings.TrimSpace(row.ID.Text + " " + out.Err.Code + " " + out.Err.Raw)
			}
			lines = append(lines, line)
			return nil
		})
	}))(b.t)
	return lines
}

func TestRaw_RefusalsAreAnswers(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		e := &scripted{answer: func(_ context.Context, row string, _ int) (engine.Reply, error) {
			if row == `{"n":1}` {
				return engine.Reply{}, &engine.Error{Class: engine.RowFault, Status: 400, TooLong: true, Raw: `{"error":1}`}
			}
			return engine.Reply{Content: `{"echo":` + row + `}`, Finish: rowmill.FinishStop, InputTokens: 1}, nil
		}}
		b := setup(t, e)
		rec := b.end(b.submit(b.raw(3)))
		if got := fmt.Sprint(b.lines(rec)); got != `[id-0 ok id-1 http_400 {"error":1} id-2 ok]` || rec.Job.Status != rowmill.StatusSucceeded {
			t.Errorf("%s: %s", rec.Job.Status, got)
		}
	})
}

func TestRaw_AllRefusedIsNoFailureOfTheJob(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		e := &scripted{answer: func(context.Context, string, int) (engine.Reply, error) {
			return engine.Reply{}, &engine.Error{Class: engine.RowFault, Status: 422}
		}}
		b := setup(t, e)
		rec := b.end(b.submit(b.raw(40)))
		if rec.Job.Status != rowmill.StatusSucceeded || rec.Job.FailedRows != 40 {
			t.Errorf("%s with %d failed rows: %v", rec.Job.Status, rec.Job.FailedRows, rec.Job.FailureReason)
		}
	})
}

func TestRaw_APathThatTheServerLacksFailsTheJob(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		e := &scripted{answer: func(context.Context, string, int) (engine.Reply, error) {
			return engine.Reply{}, &engine.Error{Class: engine.JobFault, Status: 404, Message: "the server has no /v1/p"}
		}}
		b := setup(t, e)
		rec := b.end(b.submit(b.raw(40)))
		if rec.Job.Status != rowmill.StatusFailed || rec.Job.FailureReason.Code != rowmill.CodeEngineError || !strings.Contains(rec.Job.FailureReason.Message, "/v1/p") {
			t.Errorf("%s: %+v", rec.Job.Status, rec.Job.FailureReason)
		}
	})
}

func TestRaw_TheWindowCloses(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		e := &scripted{answer: func(ctx context.Context, row string, _ int) (engine.Reply, error) {
			if row == `{"n":0}` {
				return engine.Reply{Content: `{}`, Finish: rowmill.FinishStop}, nil
			}
			<-ctx.Done()
			return engine.Reply{}, ctx.Err()
		}}
		b := setup(t, e, func(c *actors.Config) { c.Inputs.Retention = week })
		spec := b.raw(3)
		deadline := time.Now().Add(3 * time.Second)
		spec.Raw.Deadline = &deadline
		rec := b.end(b.submit(spec))
		if rec.Job.Status != rowmill.StatusFailed || rec.Job.FailureReason.Code != rowmill.CodeWindowExpired {
			t.Fatalf("%s: %+v", rec.Job.Status, rec.Job.FailureReason)
		}
		rec = b.await(rec.Job.ID, func(r store.Record) bool { return r.InputUntil != nil })
		if got := fmt.Sprint(b.lines(rec)); got != "[id-0 ok id-1 not_run id-2 not_run]" {
			t.Errorf("got %s", got)
		}
	})
}
