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
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/batch"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/store"
)

// Dialect answers in the dialect.
type Dialect struct {
	batch.Config
	Files store.Files

	batches *batch.Batches
}

// Route adds the routes of files and batches.
func (d *Dialect) Route(v1 gin.IRoutes) {
	d.batches = &batch.Batches{Config: d.Config, Dialect: rowmill.DialectOpenAI, Prefix: prefixBatch, Outcomes: d.outcomes}
	handle, do := d.Exchange.Handle, d.Exchange.Do
	v1.POST("/files", handle(d.upload))
	v1.GET("/files", handle(d.listFiles))
	v1.GET("/files/:file_id", handle(d.showFile))
	v1.DELETE("/files/:file_id", handle(d.deleteFile))
	v1.GET("/files/:file_id/content", do(d.content))
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

// typeServer is the type of errors of the service.
const typeServer = "server_error"

// Error is the body of an error.
func Error(_ *gin.Context, e *request.Error) any { return gin.H{"error": ErrorObject(e)} }

// ErrorObject is an error in its body: all four members, with real nulls.
func ErrorObject(e *request.Error) gin.H {
	var param *string
	if len(e.Fields) > 0 {
		param = &e.Fields[0].Field
	}
	return gin.H{"message": e.Message, "type": batch.ErrorType(e.Status, typeServer), "param": param, "code": e.Code}
}

// Scheme is the word before a key in the header Authorization.
const Scheme = "Bearer"

// unixTime is a time in whole seconds, nil for none.
func unixTime(t *time.Time) *int64 {
	if t == nil {
		return nil
	}
	seconds := t.Unix()
	return &seconds
}

// fileID is a new id of a file.
func fileID() string { return prefixFile + batch.Hex(rowmill.NewJobID()) }

// What ids begin with.
const (
	prefixFile  = "file-"
	prefixBatch = "batch_"
)
