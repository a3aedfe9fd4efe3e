// Package openai is the dialect of OpenAI's clients: files, and batches of
// requests that stand in them. It owns the form of both, of their errors and of
// the files that a batch leaves. What a batch does is a job like any other, whose
// rows are request bodies; the package refuses to know how it runs.
//
//	POST /v1/files ──► object and record of the file
//	POST /v1/batches ──► copy of the object, record of a job ──► the pipeline
//	GET /v1/batches/{id} ◄── the job's record; once it is over, its files are made
//	GET /v1/files/{id}/content ◄── an artifact of the job
//
// What clients send and expect was read in openai 3.54.0 for Python and 6.49.0
// for Node.
package openai

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/results/archive"
	"github.com/rowmill/rowmill/store"
)

// Jobs is what the dialect needs of jobs in general.
type Jobs interface {
	// Account is whose request it is.
	Account(c *gin.Context) string
	// Find returns a job of whoever asks, or a 404.
	Find(c *gin.Context, id string) (store.Record, error)
	// Create charges the account of the request with a job, copies the object at the
	// key from to where it is to find its input, and stores it. With idem, the same
	// request may have stored another before: then existed is true.
	Create(c *gin.Context, record store.Record, from string, idem *store.Idempotency) (stored store.Record, existed bool, err error)
	// Repeated returns what the same request has stored before, or
	// rowmill.ErrNotFound.
	Repeated(c *gin.Context, idem store.Idempotency) (store.Record, error)
	// Cancel ends a job, or returns rowmill.ErrTerminal.
	Cancel(ctx context.Context, id string) (store.Record, error)
}

// Store is what the dialect needs of a store.
type Store interface {
	store.Files
	store.Values
	Batches(ctx context.Context, account, dialect string, page store.Page) ([]store.Record, bool, error)
	AddArtifact(ctx context.Context, jobID, variant string, a store.Artifact) (store.Record, error)
}

// Limits bound what clients may send; none is 0.
type Limits struct {
	FileBytes int64 // of a file
	Input     input.Limits
}

// Dialect answers in the dialect.
type Dialect struct {
	Exchange *exchange.Exchange
	Jobs     Jobs
	Store    Store
	Bucket   blob.Bucket
	Archive  *archive.Archive
	Model    func(name string) (rowmill.Model, error) // as offer.Models.Find
	Limits   Limits
	Now      func() time.Time
}

// Route adds the routes of files and batches.
func (d *Dialect) Route(v1 gin.IRoutes) {
	handle, do := d.Exchange.Handle, d.Exchange.Do
	v1.POST("/files", handle(d.upload))
	v1.GET("/files", handle(d.listFiles))
	v1.GET("/files/:file_id", handle(d.showFile))
	v1.DELETE("/files/:file_id", handle(d.deleteFile))
	v1.GET("/files/:file_id/content", do(d.content))
	v1.POST("/batches", handle(d.create))
	v1.GET("/batches", handle(d.list))
	v1.GET("/batches/:batch_id", handle(d.show))
	v1.POST("/batches/:batch_id/cancel", handle(d.cancel))
}

// The types of errors.
const (
	typeInvalid = "invalid_request_error"
	typeServer  = "server_error"
)

// types of errors by status, where not one of the two.
var types = map[int]string{
	http.StatusUnauthorized:    "authentication_error",
	http.StatusForbidden:       "permission_error",
	http.StatusNotFound:        "not_found_error",
	http.StatusTooManyRequests: "rate_limit_error",
}

// Error is the body of an error: all four members, with real nulls.
func Error(e *request.Error) any {
	kind, known := types[e.Status]
	switch {
	case known:
	case e.Status >= http.StatusInternalServerError:
		kind = typeServer
	default:
		kind = typeInvalid
	}
	var param *string
	if len(e.Fields) > 0 {
		param = &e.Fields[0].Field
	}
	return gin.H{"error": gin.H{"message": e.Message, "type": kind, "param": param, "code": e.Code}}
}

// Scheme is the word before a key in the header Authorization.
const Scheme = "Bearer"

// missing is the answer to an id that the account does not have.
func missing(what, id string) error {
	return request.Errorf(http.StatusNotFound, "not_found", "no %s was found with the id %s", what, id)
}

// unixTime is a time in whole seconds, nil for none.
func unixTime(t *time.Time) *int64 {
	if t == nil {
		return nil
	}
	seconds := t.Unix()
	return &seconds
}

// fileID is a new id of a file.
func fileID() string {
	return prefixFile + strings.ReplaceAll(strings.TrimPrefix(rowmill.NewJobID(), prefixJob), "-", "")
}

// What ids begin with.
const (
	prefixJob   = "job-"
	prefixFile  = "file-"
	prefixBatch = "batch_"
)

// digits is how many hexadecimal digits a UUID has.
const digits = 32

// isHex reports whether text has the digits of a UUID.
func isHex(text string) bool {
	return len(text) == digits && strings.Trim(text, "0123456789abcdef") == ""
}

// batchID is the id of a job as the dialect has it.
func batchID(jobID string) string {
	return prefixBatch + strings.ReplaceAll(strings.TrimPrefix(jobID, prefixJob), "-", "")
}

// jobID is the inverse of batchID; ok is false for what no batch is called.
func jobID(batchID string) (id string, ok bool) {
	hex, found := strings.CutPrefix(batchID, prefixBatch)
	if !found || !isHex(hex) {
		return "", false
	}
	return prefixJob + strings.Join([]string{hex[:8], hex[8:12], hex[12:16], hex[16:20], hex[20:]}, "-"), true
}
