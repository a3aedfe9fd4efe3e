package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/input/function"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

// jobInput is the input.Reader of the stored input of another job.
type jobInput struct {
	storedRows
	job      string           // id of the other job
	next     int64            // index of the next row to read
	rowsRead int64            // number of rows that Next has returned
	template *function.Prompt // makes the prompts; nil: the stored texts are the prompts
	limit    int64            // size of a prompt in bytes

	where  *input.Condition // which answers to read; nil: all
	source *rowmill.Spec    // specification of the other job
}

// storedRows are the rows of a job's input: in its shards, or in its result file.
type storedRows struct {
	row     func(index int64) (rowmill.Row, error)
	answer  func() (text string, ok bool) // answer to the row that row has returned last; nil: the job reads no answers
	rows    int64
	types   rowmill.IDType
	columns []string // names of the columns of the rows
	close   func() error
}

// ErrInputNotReady means that a job reads the stored input or the answers of another job, and the
// other job has not yet read its input, or has not ended.
var ErrInputNotReady = errors.New("the other job has not read its input, or has no answers yet")

const (
	// inputPatience is how long a job waits for another job to read its input, before the job returns
	// ErrInputNotReady. Meanwhile it keeps its place on the node. Most inputs are read in this time.
	inputPatience = 5 * time.Second
	inputLook     = 100 * time.Millisecond // time between two looks at the other job
)

// awaitJobInput waits until another job has read its input or has ended; if answers are needed,
// until it has ended. After inputPatience it returns ErrInputNotReady.
func (g *ingester) awaitJobInput(ctx context.Context, job string) error {
	for began := g.Clock(); ; {
		var source store.Record
		err := g.Wait(ctx, func() (err error) {
			source, err = g.Jobs.Get(ctx, job)
			return err
		})
		switch {
		case errors.Is(err, rowmill.ErrNotFound):
			return nil // openJobInput says that the input is gone
		case err != nil:
			return fmt.Errorf("read the job with the input: %w", err)
		case source.Job.Status.IsTerminal(), !g.spec.FromAnswers && (source.Spec.Inline != nil || source.IsCutIntoShards()):
			return nil
		case g.Clock().Sub(began) >= inputPatience:
			return ErrInputNotReady
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(inputLook):
		}
	}
}

// openJobInput returns a reader of the stored input of a job. A job with a limit has the rows that
// its limit left out, too.
func (g *ingester) openJobInput(ctx context.Context, job string) (input.Reader, error) {
	record, err := g.Jobs.Get(ctx, job)
	switch {
	case errors.Is(err, rowmill.ErrNotFound):
		return nil, sourceGoneFailure(job)
	case err != nil:
		return nil, fmt.Errorf("read the job with the input: %w", err)
	case record.DataRemoved != nil:
		return nil, sourceGoneFailure(job)
	}
	r := &jobInput{job: job, source: &record.Spec, limit: g.Limits.WithDefaults().MaxRowBytes}
	if g.spec.FromAnswers && record.Job.Status != rowmill.StatusSucceeded {
		return nil, rowmill.Failf(rowmill.CodeDownloadFailed, "This job reads the answers of %s, but that job is %s. Resume that job, then submit this job with job: and the id of the new job.", job, record.Job.Status)
	}
	if g.spec.Where != "" {
		where, err := input.ParseCondition(g.spec.Where)
		if err != nil {
			return nil, fmt.Errorf("parse the condition of the job: %w", err) // unexpected: the condition was checked before
		}
		r.where = &where
	}
	if g.spec.Function != nil {
		if r.template, err = promptOf(&g.spec); err != nil {
			return nil, err
		}
	}
	_, hasResults := record.Artifacts[layout.Full]
	if g.spec.FromAnswers || hasResults && record.Spec.Limit == 0 { // then the shards are removed, or soon will be
		r.storedRows, err = g.openResultInputs(ctx, &record)
	} else if r.storedRows, err = g.openShards(ctx, &record); hasResults && errors.Is(err, rowmill.ErrNotFound) {
		r.storedRows, err = g.openResultInputs(ctx, &record)
	}
	if errors.Is(err, rowmill.ErrNotFound) {
		gone := sourceGoneFailure(job)
		if !record.IsCutIntoShards() && record.InputRemoved == nil {
			gone = rowmill.Failf(rowmill.CodeDownloadFailed, "This job reads the input of %s, but that job ended before it had read its input. Send the rows again.", job)
		}
		err = errors.Join(gone, err)
	}
	return r, err
}

// openShards opens the shards of a job's input. If they are removed, the error is
// rowmill.ErrNotFound.
func (g *ingester) openShards(ctx context.Context, record *store.Record) (s storedRows, err error) {
	name, m := record.Job.ID, shard.Manifest{}
	if texts := record.Spec.Inline; texts != nil {
		m = shard.InlineManifest(texts)
	} else if m, err = archive.ReadWholeManifest(ctx, g.Bucket, name); err == nil {
		name = layout.WholeInput(name)
	} else if errors.Is(err, rowmill.ErrNotFound) {
		m, err = archive.ReadManifest(ctx, g.Bucket, record)
	}
	in := archive.NewInputReader(ctx, g.Bucket, name, &record.Spec, m)
	return storedRows{
		row: in.Row, rows: m.Rows, types: m.IDType, columns: results.FieldColumns(record.Spec.Function),
		close: func() error { in.Close(); return nil },
	}, err
}

// openResultInputs opens the inputs in the result file of a job that succeeded: its shards are
// removed at its end.
func (g *ingester) openResultInputs(ctx context.Context, record *store.Record) (s storedRows, err error) {
	file, err := g.Bucket.Open(ctx, record.Artifacts[layout.Full].Key)
	if err != nil {
		return s, fmt.Errorf("open the result file of job %s: %w", record.Job.ID, err)
	}
	in, err := results.OpenInputs(file, g.spec.FromAnswers)
	if err != nil {
		return s, errors.Join(err, file.Close())
	}
	s = storedRows{row: in.Row, rows: in.Rows, types: in.Schema.IDType, columns: in.Schema.Fields, close: file.Close}
	if g.spec.FromAnswers {
		s.answer = in.Answer
		if s.types.IDKind == rowmill.IDNull && g.spec.IDColumn != "" { // the IDs say to which rows of the other job the rows belong
			s.types.IDKind = rowmill.IDInt
			s.row = func(index int64) (rowmill.Row, error) {
				row, err := in.Row(index)
				row.ID = rowmill.ID{Kind: rowmill.IDInt, Int: index}
				return row, err
			}
		}
	}
	return s, nil
}

// sourceGoneFailure returns the failure of a job that reads the stored input of the job id, which
// does not exist any more.
func sourceGoneFailure(id string) *rowmill.Failure {
	return rowmill.Failf(rowmill.CodeDownloadFailed, "The input of %s, which this job reads, is not kept any more. Send the rows again.", id)
}

// Next fills row with the next stored row.
func (r *jobInput) Next(row *rowmill.Row) (err error) {
	answer, err := r.readNext(row)
	if err != nil {
		return err
	}
	row.Index = r.rowsRead
	r.rowsRead++
	if r.template == nil {
		row.Fields = ""
		return nil
	}
	if row.Fields == "" && r.answer == nil {
		return nil // the client sent this row as a prompt
	}
	object, err := r.namedFields(row, answer)
	if err == nil {
		row.Text, row.Fields, err = renderRow(r.template, row.Index, object, r.limit)
	}
	return err
}

// readNext reads the next row. If the job reads answers, readNext skips rows without an answer, and
// rows with an answer that does not meet the condition, and returns the answer.
func (r *jobInput) readNext(row *rowmill.Row) (answer string, err error) {
	for ; r.next < r.rows; r.next++ {
		*row, err = r.row(r.next)
		if errors.Is(err, results.ErrInputRemoved) {
			return "", errors.Join(sourceGoneFailure(r.job), err)
		}
		if err != nil {
			return "", fmt.Errorf("read row %d of job %s: %w", r.next, r.job, err)
		}
		has := true
		if r.answer != nil {
			answer, has = r.answer()
		}
		if has && (r.where == nil || r.where.Holds(answer)) {
			r.next++
			return answer, nil
		}
	}
	return "", io.EOF
}

// namedFields returns the stored values of a row, and the values of its answer that the prompt needs,
// as a JSON object.
func (r *jobInput) namedFields(row *rowmill.Row, answer string) ([]byte, error) {
	var values []string
	if row.Fields != "" {
		if err := json.Unmarshal([]byte(row.Fields), &values); err != nil || len(values) != len(r.columns) {
			return nil, fmt.Errorf("read row %d of job %s: %w: it has other columns than its job", r.next-1, r.job, shard.ErrCorrupt)
		}
	}
	named := make(map[string]any, len(values)+1)
	if row.Fields == "" {
		named[input.TextColumn] = row.Text
	}
	for i, value := range values {
		named[r.columns[i]] = value
	}
	for _, in := range r.template.Inputs() {
		if r.answer == nil || !input.IsAnswerColumn(in.Name) || r.source.HasOwnColumn(in.Name) {
			continue
		}
		value, ok := input.AnswerValue(answer, in.Name)
		switch {
		case ok:
			named[in.Name] = value
		case in.Required:
			return nil, rowmill.Failf(rowmill.CodeInvalidInputFile,
				"The answer to row %d of job %s has no value %s. Use a json_schema that requires the value, or choose the rows with where.", r.next-1, r.job, in.Name)
		}
	}
	return json.Marshal(named)
}

// IDType returns the type of the IDs of the stored rows.
func (r *jobInput) IDType() rowmill.IDType { return r.types }

// Close closes the open shard or file.
func (r *jobInput) Close() error { return r.close() }
