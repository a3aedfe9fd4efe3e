package openai

import (
	"context"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/internal/textfmt"
	"github.com/rowmill/rowmill/store"
)

const (
	// formRoom is how many bytes a form may have in addition to its file, for the other
	// fields and the separators.
	formRoom = 1 << 20
	// maxField limits a field of a form, and maxFilename the name of a file, in bytes.
	maxField    = 1 << 10
	maxFilename = 1 << 10
	// maxFields limits the fields of a form besides the file. No client sends that many.
	maxFields = 20

	// unnamed is the name for an uploaded file that has no name. OpenAI's clients send this
	// name for data that does not come from a file.
	unnamed = "upload"
)

// Limits and default of the time that an uploaded file is kept. minExpiry and maxExpiry
// are in seconds. The default is 30 days, as at OpenAI.
const (
	minExpiry     = 3_600
	maxExpiry     = 2_592_000
	defaultExpiry = 30 * 24 * time.Hour
)

// An uploadForm is the content of a multipart/form-data request. The parts of a form arrive in
// any order, so the file may be stored before its purpose is known.
type uploadForm struct {
	fields  map[string]string
	name    string // name of the file
	size    int64  // size of the file, in bytes
	hasFile bool
}

// uploadFile answers POST /v1/files: it stores an uploaded file.
func (d *Dialect) uploadFile(c *gin.Context) (any, error) {
	parts, err := d.openForm(c, "the fields purpose and file")
	if err != nil {
		return nil, err
	}
	id, ctx := newFileID(), c.Request.Context()
	writing, stop := context.WithCancel(ctx)
	defer stop()
	w, err := d.Bucket.Create(writing, layout.FileKey(id), layout.Bytes)
	if err != nil {
		return nil, err
	}
	defer w.Abort()
	sent, err := d.readForm(parts, "file", w)
	if err != nil {
		return nil, err
	}
	expiry, err := sent.validate()
	if err != nil {
		return nil, err
	}
	// From here on, continue if the client disconnects, so that the record and the object
	// are both stored.
	ctx = context.WithoutCancel(ctx)
	now := d.Now().UTC()
	until := now.Add(expiry).Truncate(time.Second)
	f := store.File{
		ID: id, Account: caller.PrincipalOf(c).Account, Purpose: sent.fields["purpose"], Name: sent.name, Size: sent.size,
		Created: now.Truncate(time.Second), Expires: &until, Key: layout.FileKey(id),
	}
	// Store the record first. After a crash the object then has a record, so it expires.
	if err := d.createRecord(ctx, f); err != nil {
		return nil, err
	}
	if _, err := w.Commit(); err != nil {
		if dropErr := d.Store.DeleteFile(ctx, id); dropErr != nil {
			d.Exchange.Logger.Warn("removing the record of a file that was not stored failed, the record expires later", exchange.KeyRequest, exchange.RequestID(c), exchange.KeyErr, dropErr)
		}
		return nil, err
	}
	return viewFile(f), nil
}

// openForm returns a reader for the parts of a multipart form. fields names the expected
// fields for the error.
func (d *Dialect) openForm(c *gin.Context, fields string) (*multipart.Reader, error) {
	kind, params, err := mime.ParseMediaType(c.GetHeader("Content-Type"))
	if err != nil || kind != "multipart/form-data" || params["boundary"] == "" {
		return nil, request.Errorf(http.StatusUnsupportedMediaType, "unsupported_media_type",
			"send multipart/form-data with %s", fields)
	}
	most := d.Limits.FileBytes + formRoom
	if c.Request.ContentLength > most {
		return nil, fileTooLargeError(d.Limits.FileBytes)
	}
	return multipart.NewReader(d.Exchange.Body(c, most), params["boundary"]), nil
}

// readForm reads a multipart form. It writes the file in the given field to w, and returns
// the other fields and the file's name and size.
func (d *Dialect) readForm(parts *multipart.Reader, field string, w io.Writer) (uploadForm, error) {
	sent := uploadForm{fields: map[string]string{}}
	for {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) { // the end of the form; if it came too early, fields are missing and validate reports them
			return sent, nil
		}
		if err != nil {
			return sent, d.formError(err)
		}
		name := part.FormName()
		if name == field {
			if sent.hasFile {
				return sent, request.Errorf(http.StatusBadRequest, request.CodeInvalid, "the form has the field %s twice; send it once", field)
			}
			sent.hasFile, sent.name = true, filename(part)
			if sent.size, err = io.Copy(w, io.LimitReader(part, d.Limits.FileBytes+1)); err != nil {
				return sent, d.formError(err)
			}
			if sent.size > d.Limits.FileBytes {
				return sent, fileTooLargeError(d.Limits.FileBytes)
			}
			continue
		}
		value, err := io.ReadAll(io.LimitReader(part, maxField+1))
		switch {
		case err != nil:
			return sent, d.formError(err)
		case len(value) > maxField || len(sent.fields) == maxFields:
			return sent, request.Errorf(http.StatusBadRequest, request.CodeInvalid,
				"the form has more than %d fields besides the file, or one of them has more than %d bytes", maxFields, maxField)
		}
		sent.fields[name] = string(value)
	}
}

// formError turns an error from reading a form into an error for the client.
func (d *Dialect) formError(err error) error {
	var (
		stalled  *request.Error
		overlong *http.MaxBytesError
	)
	switch {
	case errors.As(err, &stalled):
		return stalled
	case errors.As(err, &overlong):
		return fileTooLargeError(d.Limits.FileBytes)
	}
	return request.Errorf(http.StatusBadRequest, "invalid_multipart", "the form ends in the middle, or is not multipart/form-data; send it again")
}

// filename returns the name that the client gave to a file. The name may be UTF-8,
// which some clients send without declaring the encoding.
func filename(part *multipart.Part) string {
	_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	name := params["filename"]
	if err != nil || name == "" {
		return unnamed
	}
	return textfmt.Shorten(name, maxFilename)
}

// validate checks the fields of a form, and returns how long to keep the file.
func (sent uploadForm) validate() (expiry time.Duration, err error) {
	var p request.Problems
	switch purpose := sent.fields["purpose"]; {
	case purpose == "":
		p.Add("purpose", "is missing; it must be one of %s", strings.Join(purposes, ", "))
	default:
		checkPurpose(&p, purpose)
	}
	if !sent.hasFile {
		p.Add("file", "is missing; send the file as the field file of the form")
	}
	expiry = defaultExpiry
	anchor, anchored := sent.fields["expires_after[anchor]"]
	seconds, given := sent.fields["expires_after[seconds]"]
	if anchored || given {
		if anchor != "created_at" {
			p.Add("expires_after.anchor", "must be created_at")
		}
		n, err := strconv.ParseInt(seconds, 10, 64)
		if err != nil || n < minExpiry || n > maxExpiry {
			p.Add("expires_after.seconds", "must be a whole number from %d to %d", minExpiry, maxExpiry)
		}
		expiry = time.Duration(n) * time.Second
	}
	return expiry, p.Err()
}
