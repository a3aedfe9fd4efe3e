package actors_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/store"
)

// TestAJobReadsTheAnswersOfAnother tests that a job waits for the answers of another job, gives them
// to its prompt, and skips failed rows and rows that do not meet the condition.
func TestAJobReadsTheAnswersOfAnother(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		judge := func(_ context.Context, row string, _ int) (engine.Reply, error) {
			time.Sleep(time.Second)
			var n int
			switch found, _ := fmt.Sscanf(row, "row %d", &n); {
			case found == 0:
				return engine.Reply{Content: "again: " + row, Finish: rowmill.FinishStop}, nil
			case n%41 == 0:
				return engine.Reply{}, &engine.Error{Class: engine.RowFault, Message: "refused"}
			}
			return engine.Reply{Content: fmt.Sprintf(`{"score": %d}`, n%10), Finish: rowmill.FinishStop}, nil
		}
		b := setup(t, &scripted{answer: judge})
		var texts, want []string
		for i := range 400 {
			texts = append(texts, fmt.Sprintf("row %d", i))
			if i%41 != 0 && i%10 < 4 {
				want = append(want, fmt.Sprintf("again: %d of %s", i%10, texts[i]))
			}
		}
		first := b.submit(rowmill.Spec{Spooled: b.spool(texts)})
		second := b.submit(rowmill.Spec{
			FromJob: first, AnswerChoice: rowmill.AnswerChoice{FromAnswers: true, Where: "answer.score < 4"},
			ColumnChoice: rowmill.ColumnChoice{IDColumn: "row"},
			Function: &rowmill.FunctionPrompt{
				Inputs: []rowmill.FunctionInput{{Name: "answer.score", Required: true}, {Name: "input", Required: true}},
				Prompt: "{{answer.score}} of {{input}}",
			},
		})
		parked := b.await(second, func(r store.Record) bool { return r.Job.ParkedUntil != nil })
		if text := parked.Job.Message; !strings.Contains(text, "Waiting for the answers of "+first) {
			t.Errorf("the message of the waiting job is %q", text)
		}
		rec := b.end(second)
		if rec.Job.NumRows == nil || *rec.Job.NumRows != int64(len(want)) {
			t.Fatalf("the job has %v rows, want %d: %s", rec.Job.NumRows, len(want), rec.Job.Message)
		}
		columns := b.columns(rec)
		for i, text := range want {
			if got := columns["outputs"][i]; got != text {
				t.Errorf("row %d is %q, want %q", i, got, text)
			}
			var score, row int
			_, _ = fmt.Sscanf(text, "again: %d of row %d", &score, &row)
			if id := fmt.Sprint(columns["row"][i]); id != fmt.Sprint(row) {
				t.Errorf("row %d has the ID %s, want %d", i, id, row)
			}
		}
	})
}

// TestAColumnNamedAnswer tests that a column of the input that is named answer stays a column in a job
// that reads answers.
func TestAColumnNamedAnswer(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b := setup(t, &scripted{answer: echo})
		prompt := &rowmill.FunctionPrompt{Inputs: []rowmill.FunctionInput{{Name: "answer", Required: true}}, Prompt: "Is {{answer}} right?"}
		first := b.submit(rowmill.Spec{Spooled: b.spoolLines(`{"answer":"42"}`, `{"answer":"43"}`), Function: prompt})
		second := b.submit(rowmill.Spec{
			FromJob: first, AnswerChoice: rowmill.AnswerChoice{FromAnswers: true, Where: "answer != nothing"}, Function: prompt,
			ColumnChoice: rowmill.ColumnChoice{IDColumn: "row"},
		})
		b.checkEcho(b.end(second), []string{"Is 42 right?", "Is 43 right?"})
	})
}
