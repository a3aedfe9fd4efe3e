package archive

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
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
	if record.Spec.Limit > 0 && record.Job.InputRows != nil && len(record.Spec.Keep) > 0 {
		from.Chosen = shard.ChooseRows(&record.Spec, *record.Job.InputRows)
	}
	wide, closeFiles, err := OpenWide(ctx, a.bucket, record.Job.ID, &record.Spec, from, baseKey, rowsKey)
	if err != nil {
		return err
	}
	defer closeFiles()
	return wide.Write(ctx, w, results.Wide, 0, wide.Rows())
}

// OpenWide opens the files of a job's results, and its kept columns, as one wide file. from has the
// settings. The caller must call closeFiles.
func OpenWide(ctx context.Context, bucket blob.Bucket, id string, spec *rowmill.Spec, from results.WideSource, baseKey, rowsKey string) (wide *results.WideFile, closeFiles func(), err error) {
	var open []blob.Object
	closeFiles = func() {
		for _, o := range open {
			o.Close()
		}
	}
	defer func() {
		if err != nil {
			closeFiles()
		}
	}()
	file := func(what, key string) (results.Source, error) {
		o, err := bucket.Open(ctx, key)
		if err != nil {
			return nil, fmt.Errorf("open the %s: %w", what, err)
		}
		open = append(open, o)
		return o, nil
	}
	if from.Full, err = file("result file", baseKey); err != nil {
		return nil, nil, err
	}
	if from.Rows, err = file("rows file", rowsKey); err != nil {
		return nil, nil, err
	}
	if len(spec.Keep) > 0 {
		if from.Kept, err = file("kept columns", layout.KeptColumnsKey(id)); err != nil {
			return nil, nil, err
		}
	}
	wide, err = results.OpenWide(from)
	return wide, closeFiles, err
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
