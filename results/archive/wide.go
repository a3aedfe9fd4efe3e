package archive

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

// ListKept returns the names of the columns that a job keeps of its input.
func (a *Archive) ListKept(ctx context.Context, record store.Record) ([]string, error) {
	kept, err := a.bucket.Open(ctx, layout.KeptColumnsKey(record.Job.ID))
	if err != nil {
		return nil, MissingAsRemoved(fmt.Errorf("open the kept columns: %w", err))
	}
	defer kept.Close()
	names, err := results.ListColumns(kept)
	return names, MissingAsRemoved(err)
}

// makeWide returns the file base with more columns, see results.WriteWide. rows is the artifact
// with the reserved columns of its rows. The first request makes the file. name is the name of
// the new artifact.
func (a *Archive) makeWide(ctx context.Context, record store.Record, base, rows store.Artifact, name string) (store.Artifact, error) {
	return a.getOrMakeFile(ctx, record, artifactSpec{name, layout.NewSubsetKey, layout.Parquet}, func(ctx context.Context, w io.Writer) error {
		return MissingAsRemoved(a.writeWide(ctx, w, record, base.Key, rows.Key))
	})
}

func (a *Archive) writeWide(ctx context.Context, w io.Writer, record store.Record, baseKey, rowsKey string) (err error) {
	from := results.WideSource{Answers: record.Spec.Schema}
	if from.Specification, err = describeSpecification(record.Job, a.Version); err != nil {
		return err
	}
	full, err := a.bucket.Open(ctx, baseKey)
	if err != nil {
		return fmt.Errorf("open the result file: %w", err)
	}
	defer full.Close()
	rows, err := a.bucket.Open(ctx, rowsKey)
	if err != nil {
		return fmt.Errorf("open the rows file: %w", err)
	}
	defer rows.Close()
	from.Full, from.Rows = full, rows
	if len(record.Spec.Keep) > 0 {
		kept, err := a.bucket.Open(ctx, layout.KeptColumnsKey(record.Job.ID))
		if err != nil {
			return fmt.Errorf("open the kept columns: %w", err)
		}
		defer kept.Close()
		from.Kept = kept
		if record.Spec.Limit > 0 && record.Job.InputRows != nil {
			from.Chosen = shard.ChooseRows(&record.Spec, *record.Job.InputRows)
		}
	}
	return results.WriteWide(ctx, w, from)
}

// describeSpecification returns the settings of a job as JSON, for the metadata of its results.
// version is the version of this program.
func describeSpecification(job rowmill.Job, version string) (string, error) {
	text, err := json.Marshal(struct {
		Model    string               `json:"model"`
		Function *rowmill.FunctionRef `json:"function,omitempty"`
		System   *string              `json:"system_prompt,omitempty"`
		Prompt   *string              `json:"prompt,omitempty"`
		Schema   json.RawMessage      `json:"json_schema,omitempty"`
		Sampling map[string]any       `json:"sampling_params"`
		Servers  []string             `json:"servers,omitempty"`
		Version  string               `json:"rowmill_version,omitempty"`
	}{job.Model, job.Function, job.System, job.Prompt, job.Schema, job.Sampling, job.Servers, version})
	if err != nil {
		return "", fmt.Errorf("encode the specification: %w", err)
	}
	return string(text), nil
}
