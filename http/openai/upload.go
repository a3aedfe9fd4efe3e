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
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/internal/spelling"
	"github.com/rowmill/rowmill/store"
)

const (
	// formRoom is what the fields of a form and the lines between them may have
	// beside the file, bytes.
	formRoom = 1 << 20
	// maxField bounds a field of a form, and maxFilename the name of a file, bytes.
	maxField    = 1 << 10
	maxFilename = 1 << 10
	// maxFields is more than any client sends.
	maxFields = 20

	// unnamed is what clients call bytes that have no name.
	unnamed = "upload"
)

// How long files are kept, seconds; without a word 30 days, as upstream.
const (
	leastExpiry    = 3_600
	mostExpiry     = 2_592_000
	standardExpiry = 30 * 24 * time.Hour
)

// A form is what an upload consists of. Its parts come in any order: the file is
// stored before it is known what for.
type form struct {
	fields map[string]string
	name   string
	size   int64
	filed  bool
}

// upload answers POST /v1/files.
func (d *Dialect) upload(c *gin.Context) (any, error) {
	parts, err := d.parts(c, "the fields purpose and file")
	if err != nil {
		return nil, err
	}
	id, ctx := fileID(), c.Request.Context()
	writing, stop := context.WithCancel(ctx)
	defer stop()
	w, err := d.Bucket.Create(writing, layout.File(id), layout.Bytes)
	if err != nil {
		return nil, err
	}
	defer w.Abort()
	sent, err := d.read(parts, "file", w)
	if err != nil {
		return nil, err
	}
	expiry, err := sent.check()
	if err != nil {
		return nil, err
	}
	// From here on a client that leaves does not leave half a file behind.
	ctx = context.WithoutCancel(ctx)
	now := d.Now().UTC()
	until := now.Add(expiry).Truncate(time.Second)
	f := store.File{
		ID: id, Account: d.Jobs.Account(c), Purpose: sent.fields["purpose"], Name: sent.name, Size: sent.size,
		Created: now.Truncate(time.Second), Expires: &until, Key: layout.File(id),
	}
	// The record comes first: what a crash leaves of an upload expires then.
	if err := d.record(ctx, f); err != nil {
		return nil, err
	}
	if _, err := w.Commit(); err != nil {
		if dropErr := d.Files.DeleteFile(ctx, id); dropErr != nil {
			d.Exchange.Logger.Warn("removing the record of a file that was not stored failed; it expires", exchange.KeyRequest, exchange.RequestID(c), exchange.KeyErr, dropErr)
		}
		return nil, err
	}
	return viewFile(f), nil
}

// parts begins to read a form.
func (d *Dialect) parts(c *gin.Context, fields string) (*multipart.Reader, error) {
	kind, params, err := mime.ParseMediaType(c.GetHeader("Content-Type"))
	if err != nil || kind != "multipart/form-data" || params["boundary"] == "" {
		return nil, request.Errorf(http.StatusUnsupportedMediaType, "unsupported_media_type",
			"send multipart/form-data with %s", fields)
	}
	most := d.Limits.FileBytes + formRoom
	if c.Request.ContentLength > most {
		return nil, tooLarge(d.Limits.FileBytes)
	}
	return multipart.NewReader(d.Exchange.Body(c, most), params["boundary"]), nil
}

// read takes a form apart, and writes the file in the field called so to w.
func (d *Dialect) read(parts *multipart.Reader, field string, w io.Writer) (form, error) {
	sent := form{fields: map[string]string{}}
	for {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) { // or it ends in the middle, and lacks what check asks for
			return sent, nil
		}
		if err != nil {
			return sent, d.broken(err)
		}
		name := part.FormName()
		if name == field {
			if sent.filed {
				return sent, request.Errorf(http.StatusBadRequest, request.CodeInvalid, "the form has the field %s twice; send it once", field)
			}
			sent.filed, sent.name = true, filename(part)
			if sent.size, err = io.Copy(w, io.LimitReader(part, d.Limits.FileBytes+1)); err != nil {
				return sent, d.broken(err)
			}
			if sent.size > d.Limits.FileBytes {
				return sent, tooLarge(d.Limits.FileBytes)
			}
			continue
		}
		value, err := io.ReadAll(io.LimitReader(part, maxField+1))
		switch {
		case err != nil:
			return sent, d.broken(err)
		case len(value) > maxField || len(sent.fields) == maxFields:
			return sent, request.Errorf(http.StatusBadRequest, request.CodeInvalid,
				"the form has too many or too long fields beside the file")
		}
		sent.fields[name] = string(value)
	}
}

// broken is the error of a form that cannot be read on.
func (d *Dialect) broken(err error) error {
	var (
		stalled  *request.Error
		overlong *http.MaxBytesError
	)
	switch {
	case errors.As(err, &stalled):
		return stalled
	case errors.As(err, &overlong):
		return tooLarge(d.Limits.FileBytes)
	}
	return request.Errorf(http.StatusBadRequest, "invalid_multipart", "the form ends in the middle, or is no multipart/form-data; send it again")
}

// filename is the name that the client gave a file, of which some are UTF-8
// without saying so.
func filename(part *multipart.Part) string {
	_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	name := params["filename"]
	if err != nil || name == "" {
		return unnamed
	}
	return spelling.Shorten(name, maxFilename)
}

// check says what is wrong with a form, and how long its file is to be kept.
func (sent form) check() (expiry time.Duration, err error) {
	var p request.Problems
	switch purpose := sent.fields["purpose"]; {
	case purpose == "":
		p.Add("purpose", "is missing; it must be one of %s", strings.Join(purposes, ", "))
	default:
		checkPurpose(&p, purpose)
	}
	if !sent.filed {
		p.Add("file", "is missing; send the file as the field file of the form")
	}
	expiry = standardExpiry
	anchor, anchored := sent.fields["expires_after[anchor]"]
	seconds, given := sent.fields["expires_after[seconds]"]
	if anchored || given {
		if anchor != "created_at" {
			p.Add("expires_after.anchor", "must be created_at")
		}
		n, err := strconv.ParseInt(seconds, 10, 64)
		if err != nil || n < leastExpiry || n > mostExpiry {
			p.Add("expires_after.seconds", "must be a whole number from %d to %d", leastExpiry, mostExpiry)
		}
		expiry = time.Duration(n) * time.Second
	}
	return expiry, p.Err()
}
