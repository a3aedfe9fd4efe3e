package http

import (
	"bufio"
	"context"
	"fmt"
	nethttp "net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/results"
	"github.com/rowmill/rowmill/store"
)

const (
	// defaultExpiry and maxExpiry are seconds that a signed URL works.
	defaultExpiry = 3600
	maxExpiry     = 604_800
)

func errGone() *apiError {
	return errorf(nethttp.StatusGone, "results_expired", "retention has removed the results of this job; submit it again to have them")
}

// queryBool reads a parameter that is false when absent.
func queryBool(c *gin.Context, name string, p *problems) bool {
	text, given := c.GetQuery(name)
	if !given {
		return false
	}
	value, err := strconv.ParseBool(text)
	if err != nil {
		p.add(name, "is %q; it must be true or false", shorten(text, 32))
	}
	return value
}

func queryVariant(c *gin.Context, p *problems) results.Variant {
	return results.Variant{
		Inputs:   queryBool(c, "include_inputs", p),
		Logprobs: queryBool(c, "include_cumulative_logprobs", p),
	}
}

// queryFormat reads format, also accepted as result_format.
func queryFormat(c *gin.Context, p *problems) string {
	name := "format"
	text, given := c.GetQuery(name)
	if alias, aliased := c.GetQuery("result_format"); aliased {
		if given && alias != text {
			p.add("result_format", "contradicts format; send one of them")
			return ""
		}
		name, text, given = "result_format", alias, true
	}
	if !given {
		return "json"
	}
	switch text {
	case "json", "csv", "parquet":
	default:
		p.add(name, "is %q; it must be json, csv or parquet", shorten(text, 32))
	}
	return text
}

// finished returns the job if it has results of the variant.
func (s *Server) finished(c *gin.Context, v results.Variant) (store.Record, error) {
	record, err := s.findJob(c)
	if err == nil {
		err = ready(record, v)
	}
	return record, err
}

// ready reports why a job has no results of the variant, or nil.
func ready(record store.Record, v results.Variant) error {
	status := record.Job.Status
	switch {
	case record.Job.RunType == rowmill.RunEstimate:
		return errorf(nethttp.StatusConflict, "no_results",
			"an estimate job has no results; its record holds cost_estimate once it has succeeded").with("status", status)
	case status != rowmill.StatusSucceeded && status.Terminal():
		return errorf(nethttp.StatusConflict, "job_not_succeeded",
			"the job is %s; only succeeded jobs have results", status).with("status", status)
	case status != rowmill.StatusSucceeded:
		return errorf(nethttp.StatusConflict, "job_not_succeeded",
			"the job is %s; its results are ready once it has succeeded", status).with("status", status)
	case record.DataRemoved != nil:
		return errGone()
	case v.Logprobs && record.Spec.Model.NoLogprobs:
		return &rowmill.InvalidError{Code: "logprobs_not_recorded", Fields: []rowmill.FieldError{{
			Field:   "include_cumulative_logprobs",
			Message: fmt.Sprintf("the catalog turns log probabilities off for %s, so none were recorded; leave it out", record.Spec.Model.ID),
		}}}
	}
	return nil
}

// getResults answers with the results as a file.
func (s *Server) getResults(c *gin.Context) {
	var p problems
	format, v := queryFormat(c, &p), queryVariant(c, &p)
	if err := p.err(); err != nil {
		s.fail(c, err)
		return
	}
	record, err := s.finished(c, v)
	if err == nil {
		err = s.sendResults(c, record, format, v)
	}
	if err != nil {
		s.fail(c, err)
	}
}

func (s *Server) sendResults(c *gin.Context, record store.Record, format string, v results.Variant) error {
	ctx, id := c.Request.Context(), record.Job.ID
	if format == "parquet" {
		made, err := s.artifact(ctx, record, v)
		if err != nil {
			return err
		}
		return s.sendObject(c, made, results.Filename(id, v, "parquet"))
	}
	source, schema, err := s.openFull(ctx, record)
	if err != nil {
		return err
	}
	defer source.Close()
	contentType, extension, write := "application/json", "json", results.WriteJSON
	if format == "csv" {
		contentType, extension, write = "application/zip", "zip", results.WriteCSVZip
	}
	s.stream(c, contentType, results.Filename(id, v, extension), func(w *bufio.Writer) error {
		return removed(write(ctx, w, source, schema, v))
	})
	return nil
}

// openFull opens the full file of a job that has succeeded; the caller closes it.
func (s *Server) openFull(ctx context.Context, record store.Record) (blob.Object, results.Schema, error) {
	full, found := record.Artifacts[artifactFull]
	if !found {
		return nil, results.Schema{}, fmt.Errorf("job %s succeeded without a result file", record.Job.ID)
	}
	source, err := s.Bucket.Open(ctx, full.Key)
	if err != nil {
		return nil, results.Schema{}, removed(fmt.Errorf("open the result file: %w", err))
	}
	schema, err := results.ReadSchema(source)
	if err != nil {
		source.Close()
		return nil, schema, removed(err)
	}
	return source, schema, nil
}

// sendObject answers with an object, or the range of it that is asked for.
func (s *Server) sendObject(c *gin.Context, a store.Artifact, filename string) error {
	object, err := s.Bucket.Open(c.Request.Context(), a.Key)
	if err != nil {
		return removed(fmt.Errorf("open the result file: %w", err))
	}
	defer object.Close()
	info := object.Info()
	c.Header("Content-Type", parquetType)
	c.Header("Content-Disposition", disposition(filename))
	c.Header("Cache-Control", "private, no-cache")
	c.Header("ETag", info.ETag)
	nethttp.ServeContent(&jsonErrors{ResponseWriter: &patientWriter{ResponseWriter: c.Writer, patience: s.Patience}, s: s, c: c}, c.Request, "", info.Modified, blob.NewReader(object))
	return nil
}

// jsonErrors replaces the text that net/http answers to an impossible Range.
type jsonErrors struct {
	nethttp.ResponseWriter
	s        *Server
	c        *gin.Context
	replaced bool
}

// WriteHeader sends the status, and a body of ours with 416.
func (w *jsonErrors) WriteHeader(status int) {
	if status != nethttp.StatusRequestedRangeNotSatisfiable {
		w.ResponseWriter.WriteHeader(status)
		return
	}
	w.replaced = true
	w.Header().Del("Content-Disposition")
	w.Header().Del("ETag")
	w.Header().Del("Last-Modified")
	w.s.fail(w.c, errorf(status, "range_not_satisfiable", "the range lies outside the file; ask for one within its size"))
}

// Write sends the file.
func (w *jsonErrors) Write(p []byte) (int, error) {
	if w.replaced {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}

// getResultsURL answers with signed URLs of the results as Parquet.
func (s *Server) getResultsURL(c *gin.Context) {
	var p problems
	if format, given := c.GetQuery("format"); given && format != "parquet" {
		p.add("format", "is %q; only parquet has a URL; download other formats from /results", shorten(format, 32))
	}
	v := queryVariant(c, &p)
	seconds := defaultExpiry
	if text, given := c.GetQuery("expires_in_seconds"); given {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxExpiry {
			p.add("expires_in_seconds", "is %q; it must be an integer from 1 to %d", shorten(text, 32), maxExpiry)
		}
		seconds = n
	}
	if err := p.err(); err != nil {
		s.fail(c, err)
		return
	}
	record, err := s.finished(c, v)
	if err != nil {
		s.fail(c, err)
		return
	}
	descriptor, err := s.descriptor(c, record, v, seconds)
	if err != nil {
		s.fail(c, err)
		return
	}
	answer(c, nethttp.StatusOK, descriptor)
}

func (s *Server) descriptor(c *gin.Context, record store.Record, v results.Variant, seconds int) (gin.H, error) {
	ctx := c.Request.Context()
	made, err := s.artifact(ctx, record, v)
	if err != nil {
		return nil, err
	}
	if _, err := s.Bucket.Stat(ctx, made.Key); err != nil {
		return nil, removed(fmt.Errorf("describe the result file: %w", err))
	}
	filename := results.Filename(record.Job.ID, v, "parquet")
	urls := map[string]string{}
	for _, method := range []string{nethttp.MethodGet, nethttp.MethodHead} {
		url, err := s.Bucket.SignURL(ctx, method, made.Key, filename, time.Duration(seconds)*time.Second)
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
			"bucket": s.Bucket.Name(), "key": made.Key, "filename": filename, "size_bytes": made.Size,
		},
		"urls": urls,
	}, nil
}
