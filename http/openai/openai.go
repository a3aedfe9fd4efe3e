// Package openai answers requests of OpenAI's clients for files, and for batches of the
// requests in these files. It defines the JSON form of files and batches, of errors, and
// of the files that a batch produces. Each batch runs as a normal job; each row of the
// job is a request body.
//
//	POST /v1/files ──► object and record of the file
//	POST /v1/batches ──► copy of the object, record of a job ──► the pipeline
//	GET /v1/batches/{id} ◄── the job's record; when it has ended, its files are made
//	GET /v1/files/{id}/content ◄── an artifact of the job
//
// What clients send and expect was taken from their source code: openai 3.54.0 for Python
// and 6.49.0 for Node.
package openai

import (
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/batch"
	"github.com/rowmill/rowmill/http/request"
)

// Dialect answers the requests of OpenAI's clients.
type Dialect struct {
	batch.Config

	batches *batch.Batches
}

// Route adds the routes of files, uploads and batches.
func (d *Dialect) Route(v1 gin.IRoutes) {
	d.batches = &batch.Batches{Config: d.Config, Dialect: rowmill.DialectOpenAI, Prefix: prefixBatch, Outcomes: d.describeResultFiles}
	handle, do := d.Exchange.Handle, d.Exchange.HandleRaw
	v1.POST("/files", handle(d.uploadFile))
	v1.GET("/files", handle(d.listFiles))
	v1.GET("/files/:file_id", handle(d.showFile))
	v1.DELETE("/files/:file_id", handle(d.deleteFile))
	v1.GET("/files/:file_id/content", do(d.sendFileContent))
	v1.POST("/uploads", handle(d.beginUpload))
	v1.GET("/uploads/:upload_id", handle(d.showUpload))
	v1.POST("/uploads/:upload_id/parts", handle(d.addPart))
	v1.POST("/uploads/:upload_id/complete", handle(d.completeUpload))
	v1.POST("/uploads/:upload_id/cancel", handle(d.cancelUpload))
	v1.POST("/batches", handle(d.create))
	v1.GET("/batches", handle(d.list))
	v1.GET("/batches/:batch_id", handle(d.show))
	v1.POST("/batches/:batch_id/cancel", handle(d.cancel))
}

// typeServer is the type of errors that the service caused.
const typeServer = "server_error"

// NewErrorBody returns the body of the answer to a failed request, as OpenAI's clients expect
// it.
func NewErrorBody(_ *gin.Context, e *request.Error) any { return gin.H{"error": ErrorObject(e)} }

// ErrorObject returns the error object in the body of an error, as OpenAI's clients
// expect it. It always has all four members; unset members are null.
func ErrorObject(e *request.Error) gin.H {
	var param *string
	if len(e.Fields) > 0 {
		param = &e.Fields[0].Field
	}
	return gin.H{"message": e.Message, "type": batch.ErrorType(e.Status, typeServer), "param": param, "code": e.Code}
}

// Scheme is the word before a key in the header Authorization.
const Scheme = "Bearer"

// unixTime returns a time as whole seconds since 1970, or nil if t is nil.
func unixTime(t *time.Time) *int64 {
	if t == nil {
		return nil
	}
	seconds := t.Unix()
	return &seconds
}

// newFileID returns a new file id.
func newFileID() string { return prefixFile + batch.JobIDDigits(rowmill.NewJobID()) }

// Beginnings of the ids of files and batches.
const (
	prefixFile  = "file-"
	prefixBatch = "batch_"
)
