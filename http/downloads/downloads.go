// Package downloads serves the results of a job as files: all formats, partial results,
// and signed URLs.
package downloads

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/jobs"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/http/sdk"
	"github.com/rowmill/rowmill/internal/textfmt"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

const (
	// defaultExpiry and maxExpiry are the default and the longest time that a signed URL
	// works, in seconds.
	defaultExpiry = 3600
	maxExpiry     = 604_800
)

// Downloads answers requests for the results of a job as files.
type Downloads struct {
	*exchange.Exchange
	Jobs    *jobs.Jobs
	Archive *archive.Archive
	Bucket  blob.Bucket
}

// Route adds the routes of result files.
func (d *Downloads) Route(v1 gin.IRoutes) {
	v1.GET("/jobs/:job_id/results", d.HandleRaw(d.sendResults))
	v1.GET("/jobs/compare/results", d.HandleRaw(d.sendJoint))
	v1.GET("/jobs/:job_id/results-url", d.Handle(d.showResultURLs))
}

// queryVariant reads the query parameters that select the optional columns of the
// results.
func queryVariant(c *gin.Context, p *request.Problems) (v results.FileVariant) {
	for _, o := range v.Options() {
		*o.Value = exchange.QueryBool(c, p, o.Parameter)
	}
	if names, given := c.GetQuery(request.FieldColumns); given {
		v.Columns = results.NewColumnNames(strings.Split(names, ",")...)
	}
	v.Meta = exchange.QueryOneOf(c, p, "include", []string{"meta"}) != ""
	v.Unpack = exchange.QueryBool(c, p, request.FieldUnpack)
	return v
}

// queryFormat reads the query parameter format, or its alias result_format. The default
// is json.
func queryFormat(c *gin.Context, p *request.Problems) string {
	name := "format"
	format, given := c.GetQuery(name)
	if alias, aliased := c.GetQuery("result_format"); aliased {
		if given && alias != format {
			p.Add("result_format", "contradicts format; send one of them")
			return ""
		}
		name, format, given = "result_format", alias, true
	}
	if !given {
		return "json"
	}
	switch format {
	case "json", "jsonl", "csv", "parquet":
	default:
		p.Add(name, "is %q; it must be json, jsonl, csv or parquet", textfmt.Shorten(format, 32))
	}
	return format
}

// jobWithResults returns the job whose id is in the path, if it has results with the
// columns of v. If partial is true, it also returns a job that has not succeeded but has
// committed rows; then isPartial is true.
func (d *Downloads) jobWithResults(c *gin.Context, v results.FileVariant, partial bool) (record store.Record, isPartial bool, err error) {
	if record, err = d.Jobs.FindInPath(c); err != nil {
		return record, false, err
	}
	if isPartial = partial && record.Job.Status != rowmill.StatusSucceeded; isPartial {
		err = request.CheckHasPartialRows(record, v)
	} else {
		err = request.CheckHasResults(record, v)
	}
	if err == nil && isPartial && v.IsWide() && !record.Job.Status.IsTerminal() {
		err = request.Errorf(http.StatusConflict, "job_not_over", "the job is %s; columns, unpack and include work after its end", record.Job.Status).WithField("status", record.Job.Status)
	}
	if err == nil && v.Columns != "" && v.Columns != results.AllColumns {
		err = d.checkKept(c.Request.Context(), record, v.Columns)
	}
	return record, isPartial, err
}

// checkKept returns an error if the job does not keep one of the named columns.
func (d *Downloads) checkKept(ctx context.Context, record store.Record, names results.ColumnNames) error {
	kept, err := d.Archive.ListKept(ctx, record)
	if err != nil {
		return err
	}
	for _, name := range names.List() {
		if !slices.Contains(kept, name) {
			return rowmill.Invalid(request.FieldColumns, "names %q; the job keeps the columns %s", textfmt.Shorten(name, 64), strings.Join(kept, ", "))
		}
	}
	return nil
}

// dataFile matches the ending of a file with rows. The console names a job by its input file.
var dataFile = regexp.MustCompile(`(?i)(\.(csv|tsv|parquet|jsonl?|ndjson|txt|gz))+$`)

// filename returns the name under which a browser saves the results of a job.
func filename(job rowmill.Job, ending string) string {
	name := job.ID
	if job.Name != nil {
		name = cmp.Or(strings.TrimSpace(dataFile.ReplaceAllString(*job.Name, "")), name)
	}
	return name + "-results." + ending
}

// sendResults answers GET /v1/jobs/{job_id}/results with the results of a job in the
// requested format.
func (d *Downloads) sendResults(c *gin.Context) error {
	var p request.Problems
	format, v, partial := queryFormat(c, &p), queryVariant(c, &p), exchange.QueryBool(c, &p, "partial")
	if err := p.Err(); err != nil {
		return err
	}
	record, some, err := d.jobWithResults(c, v, partial)
	if err != nil {
		return err
	}
	ctx := c.Request.Context()
	if format == "parquet" && (!some || record.Job.Status.IsTerminal()) && v.IsStored() {
		return d.sendParquet(c, record, v, some)
	}
	source, err := d.openResults(ctx, record, v, some)
	if err != nil {
		return err
	}
	defer source.Close()
	if sdk.UsesDialect(c) {
		source.Schema = sdk.ToSDKSchema(record, source.Schema)
	}
	contentType, ending, write := "application/json", "json", results.WriteJSON
	switch format {
	case "jsonl":
		contentType, ending, write = "application/jsonl", "jsonl", results.WriteJSONLines
	case "csv":
		contentType, ending, write = "application/zip", "csv.zip", results.WriteCSVZip
	case "parquet":
		contentType, ending = layout.Parquet, "parquet"
		write = results.WriteSubset
	}
	return d.Stream(c, contentType, filename(record.Job, ending), func(w *bufio.Writer) error {
		return archive.MissingAsRemoved(write(ctx, w, source, source.Schema, v))
	})
}

// openResults opens the rows from which the service makes the other formats: the full results
// or, if partial is true, the committed rows of a job that did not succeed.
func (d *Downloads) openResults(ctx context.Context, record store.Record, v results.FileVariant, partial bool) (archive.ResultFile, error) {
	if v.IsWide() {
		return d.openWide(ctx, record, partial)
	}
	if partial {
		return d.Archive.OpenPartial(ctx, record)
	}
	object, schema, err := d.Archive.OpenFull(ctx, record)
	return archive.ResultFile{Source: object, Schema: schema, Closer: object}, err
}

// openWide opens the rows with all columns that a client can request.
func (d *Downloads) openWide(ctx context.Context, record store.Record, partial bool) (f archive.ResultFile, err error) {
	made, err := d.makeParquetFile(ctx, record, results.Wide, partial)
	if err != nil {
		return f, err
	}
	object, err := d.Bucket.Open(ctx, made.Key)
	if err != nil {
		return f, archive.MissingAsRemoved(fmt.Errorf("open the result file: %w", err))
	}
	f = archive.ResultFile{Source: object, Closer: object}
	if f.Schema, err = results.ReadSchema(object); err != nil {
		object.Close()
	}
	return f, archive.MissingAsRemoved(err)
}

// makeParquetFile returns the Parquet file of a variant, and makes the file if there is none.
// If partial is true, the file has the committed rows of a job that did not succeed.
func (d *Downloads) makeParquetFile(ctx context.Context, record store.Record, v results.FileVariant, partial bool) (store.Artifact, error) {
	if partial {
		return d.Archive.MakePartialParquet(ctx, record, v)
	}
	return d.Archive.MakeParquet(ctx, record, v)
}

// sendParquet answers with the Parquet file of a variant. If partial is true, the file has
// the committed rows of a job that did not succeed.
func (d *Downloads) sendParquet(c *gin.Context, record store.Record, v results.FileVariant, partial bool) error {
	made, err := d.makeParquetFile(c.Request.Context(), record, v, partial)
	if err != nil {
		return err
	}
	object, err := d.Bucket.Open(c.Request.Context(), made.Key)
	if err != nil {
		return archive.MissingAsRemoved(fmt.Errorf("open the result file: %w", err))
	}
	defer object.Close()
	d.SendObject(c, object, layout.Parquet, filename(record.Job, "parquet"))
	return nil
}

// showResultURLs answers GET /v1/jobs/{job_id}/results-url: signed URLs of the results as Parquet.
func (d *Downloads) showResultURLs(c *gin.Context) (any, error) {
	var p request.Problems
	if format, given := c.GetQuery("format"); given && format != "parquet" {
		p.Add("format", "is %q; only parquet has a URL; download other formats from /results", textfmt.Shorten(format, 32))
	}
	v, partial := queryVariant(c, &p), exchange.QueryBool(c, &p, "partial")
	if !v.IsStored() {
		p.Add(request.FieldColumns, "must be * for a URL; download other columns from /results")
	}
	seconds := exchange.QueryInt(c, &p, "expires_in_seconds", defaultExpiry, 1, maxExpiry)
	if err := p.Err(); err != nil {
		return nil, err
	}
	record, some, err := d.jobWithResults(c, v, partial)
	if err == nil && some && !record.Job.Status.IsTerminal() {
		err = request.Errorf(http.StatusConflict, "job_not_over",
			"the job is %s; a URL of its results works only after its end. Use GET /v1/jobs/%s/results?partial=true until then", record.Job.Status, record.Job.ID).WithField("status", record.Job.Status)
	}
	if err != nil {
		return nil, err
	}
	ctx := c.Request.Context()
	made, err := d.makeParquetFile(ctx, record, v, some)
	if err != nil {
		return nil, err
	}
	if _, err := d.Bucket.Stat(ctx, made.Key); err != nil {
		return nil, archive.MissingAsRemoved(fmt.Errorf("check that the result file exists: %w", err))
	}
	name := results.Filename(record.Job.ID, v, "parquet")
	urls := map[string]string{}
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		url, err := d.Bucket.SignURL(ctx, method, made.Key, name, time.Duration(seconds)*time.Second)
		if err != nil {
			return nil, fmt.Errorf("sign a URL of the result file: %w", err)
		}
		urls[strings.ToLower(method)] = url
	}
	answer := gin.H{
		"job_id": record.Job.ID, "format": "parquet", "expires_in_seconds": seconds,
		"artifact": gin.H{
			"bucket": d.Bucket.Name(), "key": made.Key, "filename": name, "size_bytes": made.Size,
		},
		"urls": urls,
	}
	for _, o := range v.Options() {
		answer[o.Parameter] = *o.Value
	}
	return answer, nil
}
