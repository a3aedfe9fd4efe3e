package http

import (
	"bufio"
	"fmt"
	nethttp "net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/spelling"
	"github.com/rowmill/rowmill/store"
)

const (
	// defaultExpiry and maxExpiry are seconds that a signed URL works.
	defaultExpiry = 3600
	maxExpiry     = 604_800
)

// downloads are the results of a job as files.
type downloads struct {
	*exchange.Exchange
	jobs    *jobs
	archive *archive.Archive
	bucket  blob.Bucket
}

func queryVariant(c *gin.Context, p *request.Problems) results.Variant {
	return results.Variant{
		Inputs:   queryBool(c, p, "include_inputs"),
		Logprobs: queryBool(c, p, "include_cumulative_logprobs"),
	}
}

// queryFormat reads format, also accepted as result_format.
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
	case "json", "csv", "parquet":
	default:
		p.Add(name, "is %q; it must be json, csv or parquet", spelling.Shorten(format, 32))
	}
	return format
}

// finished returns the job if it has results of the variant.
func (d *downloads) finished(c *gin.Context, v results.Variant) (store.Record, error) {
	record, err := d.jobs.named(c)
	if err == nil {
		err = request.NoResults(record, v)
	}
	return record, err
}

// file answers GET /v1/jobs/{job_id}/results.
func (d *downloads) file(c *gin.Context) error {
	var p request.Problems
	format, v := queryFormat(c, &p), queryVariant(c, &p)
	if err := p.Err(); err != nil {
		return err
	}
	record, err := d.finished(c, v)
	if err != nil {
		return err
	}
	ctx, id := c.Request.Context(), record.Job.ID
	if format == "parquet" {
		return d.parquet(c, record, v)
	}
	source, schema, err := d.archive.Full(ctx, record)
	if err != nil {
		return err
	}
	defer source.Close()
	contentType, extension, write := "application/json", "json", results.WriteJSON
	if format == "csv" {
		contentType, extension, write = "application/zip", "zip", results.WriteCSVZip
	}
	return d.Stream(c, contentType, results.Filename(id, v, extension), func(w *bufio.Writer) error {
		return archive.Removed(write(ctx, w, source, schema, v))
	})
}

func (d *downloads) parquet(c *gin.Context, record store.Record, v results.Variant) error {
	made, err := d.archive.Parquet(c.Request.Context(), record, v)
	if err != nil {
		return err
	}
	object, err := d.bucket.Open(c.Request.Context(), made.Key)
	if err != nil {
		return archive.Removed(fmt.Errorf("open the result file: %w", err))
	}
	defer object.Close()
	d.Object(c, object, layout.Parquet, results.Filename(record.Job.ID, v, "parquet"))
	return nil
}

// urls answers GET /v1/jobs/{job_id}/results-url: signed URLs of the results as
// Parquet.
func (d *downloads) urls(c *gin.Context) (any, error) {
	var p request.Problems
	if format, given := c.GetQuery("format"); given && format != "parquet" {
		p.Add("format", "is %q; only parquet has a URL; download other formats from /results", spelling.Shorten(format, 32))
	}
	v := queryVariant(c, &p)
	seconds := queryInt(c, &p, "expires_in_seconds", defaultExpiry, 1, maxExpiry)
	if err := p.Err(); err != nil {
		return nil, err
	}
	record, err := d.finished(c, v)
	if err != nil {
		return nil, err
	}
	ctx := c.Request.Context()
	made, err := d.archive.Parquet(ctx, record, v)
	if err != nil {
		return nil, err
	}
	if _, err := d.bucket.Stat(ctx, made.Key); err != nil {
		return nil, archive.Removed(fmt.Errorf("describe the result file: %w", err))
	}
	filename := results.Filename(record.Job.ID, v, "parquet")
	urls := map[string]string{}
	for _, method := range []string{nethttp.MethodGet, nethttp.MethodHead} {
		url, err := d.bucket.SignURL(ctx, method, made.Key, filename, time.Duration(seconds)*time.Second)
		if err != nil {
			return nil, fmt.Errorf("sign a URL of the result file: %w", err)
		}
		urls[strings.ToLower(method)] = url
	}
	return gin.H{
		"job_id": record.Job.ID, "format": "parquet",
		"include_inputs": v.Inputs, "include_cumulative_logprobs": v.Logprobs,
		"expires_in_seconds": seconds,
		"artifact": gin.H{
			"bucket": d.bucket.Name(), "key": made.Key, "filename": filename, "size_bytes": made.Size,
		},
		"urls": urls,
	}, nil
}
