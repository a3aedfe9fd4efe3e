package commit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/input/sources"
	"github.com/rowmill/rowmill/internal/retry"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

// deliverAtOnce is the number of files that are written to a sink at the same time. A file in S3 takes
// 20 to 100 ms, whatever its size.
const deliverAtOnce = 8

// deliveryFolder is the folder of the lists of delivered files. Readers of folders skip names that
// begin with _.
const deliveryFolder = "_rowmill/"

// A Delivery lists the files that a job has written to its sink. It is written last, as
// _rowmill/JOB.json, and its JSON names never change.
type Delivery struct {
	Job   string          `json:"job"`
	Model string          `json:"model"`
	Rows  int64           `json:"rows"`
	Files []DeliveredFile `json:"files"`
}

// A DeliveredFile is one file of a Delivery.
type DeliveredFile struct {
	Path  string `json:"path"`            // path within the sink
	Input string `json:"input,omitempty"` // path of the input file within its source; empty if the file has all rows
	Rows  int64  `json:"rows"`

	first int64 // number of its first row in the job
}

// Deliver writes the results of a job to its sink, and then the list of the files. files are the
// result files. A job that reads files of a source gets a file for each of them, at the same path;
// any other job gets one file with the name of the job. The files have the kept columns, the IDs, the
// answers, and the properties of answers with a schema. Deliver may be repeated.
func Deliver(ctx context.Context, bucket blob.Bucket, sink *sources.Sink, id string, spec *rowmill.Spec, files map[string]store.Artifact, log *slog.Logger) error {
	wide, closeFiles, err := archive.OpenWide(ctx, bucket, id, spec, results.WideSource{Answers: spec.Schema}, files[layout.Full].Key, files[layout.Rows].Key)
	if err != nil {
		return err
	}
	defer closeFiles()
	d := Delivery{Job: id, Model: spec.Model.ID, Rows: wide.Rows()}
	if d.Files, err = planDelivery(ctx, bucket, id, spec, wide.Rows()); err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(deliverAtOnce)
	variant := results.FileVariant{Columns: results.AllColumns, Unpack: true}
	for _, file := range d.Files {
		group.Go(func() error {
			return writeToSink(groupCtx, sink, file.Path, log, func(w io.Writer) error {
				return wide.Write(groupCtx, w, variant, file.first, file.first+file.Rows)
			})
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return writeToSink(ctx, sink, deliveryFolder+id+".json", log, func(w io.Writer) error {
		lines := json.NewEncoder(w)
		lines.SetIndent("", " ")
		return lines.Encode(d)
	})
}

// writeToSink writes a file, and repeats this while the sink is unavailable.
func writeToSink(ctx context.Context, sink *sources.Sink, path string, log *slog.Logger, write func(w io.Writer) error) error {
	unavailable := func(err error) bool { return errors.Is(err, rowmill.ErrUnavailable) && ctx.Err() == nil }
	return retry.Sinks.Do(ctx, func() error { return sink.Write(ctx, path, write) }, unavailable, func(err error) {
		log.Warn("a file cannot be written to the sink; the node tries again", "sink", sink, "file", path, "err", err)
	})
}

// planDelivery returns the files to write.
func planDelivery(ctx context.Context, bucket blob.Bucket, id string, spec *rowmill.Spec, rows int64) (files []DeliveredFile, err error) {
	list, err := sources.ReadList(ctx, bucket, layout.FileListKey(id))
	if errors.Is(err, rowmill.ErrNotFound) {
		return []DeliveredFile{{Path: id + ".parquet", Rows: rows}}, nil
	}
	if err != nil {
		return nil, err
	}
	paths, first := make(map[string]string), int64(0)
	for _, file := range list {
		out := DeliveredFile{Path: sources.OutputPath(spec.Sink.Base, file), Input: file.Path, Rows: file.Rows, first: first}
		if other, taken := paths[out.Path]; taken {
			return nil, rowmill.Failf(rowmill.CodeOutputFailed, "The results of the files %s and %s would have the same path %s. Rename one of the files, and submit the job again.", other, file.Path, out.Path)
		}
		paths[out.Path] = file.Path
		if files, first = append(files, out), first+file.Rows; file.Rows == 0 {
			files = files[:len(files)-1] // a file without rows has no results
		}
	}
	if first != rows {
		return nil, fmt.Errorf("the list of files has %d rows, and the results have %d", first, rows)
	}
	return files, nil
}
