package downloads

import (
	"bufio"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/http/jobs"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

// sendJoint answers GET /v1/jobs/compare/results with the results of two to four jobs on one input as
// one Parquet file.
func (d *Downloads) sendJoint(c *gin.Context) error {
	var p request.Problems
	records, err := d.Jobs.FindCompared(c, &p, func(record store.Record) error { return request.CheckHasResults(record, results.FileVariant{}) })
	if err != nil {
		return err
	}
	rows, err := jobs.FindCommonRows(records)
	if err != nil {
		return err
	}
	for _, record := range records {
		if n := *record.Job.NumRows; n != rows.N {
			return request.Errorf(http.StatusConflict, "different_rows", "job %s has %d rows and all jobs have only %d of these rows; one file needs jobs with the same rows, so download the results of each job", record.Job.ID, n, rows.N)
		}
	}
	var files []results.JointFile
	for i, record := range records {
		variant := results.FileVariant{}
		if i == 0 && len(record.Spec.Keep) > 0 {
			variant = results.Wide // has the kept columns of the input
		}
		source, err := d.openResults(c.Request.Context(), record, variant, false)
		if err != nil {
			return err
		}
		defer source.Close()
		files = append(files, results.JointFile{Job: record.Job.ID, File: source})
	}
	return d.Stream(c, layout.Parquet, "joint-"+records[0].Job.ID+".parquet", func(w *bufio.Writer) error {
		return archive.MissingAsRemoved(results.WriteJoint(c.Request.Context(), w, files))
	})
}
