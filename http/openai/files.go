package openai

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/http/batch"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/internal/textfmt"
	"github.com/rowmill/rowmill/store"
)

// Values of the field purpose of a file.
const (
	purposeBatch  = "batch"
	purposeData   = "user_data" // a file of rows for any job
	purposeOutput = "batch_output"
)

// purposes lists the purposes of files that clients may upload.
var purposes = []string{purposeBatch, purposeData}

func checkPurpose(p *request.Problems, purpose string) {
	if !slices.Contains(purposes, purpose) {
		p.Add("purpose", "is %q; it must be one of %s", textfmt.Shorten(purpose, 64), strings.Join(purposes, ", "))
	}
}

// The default and the largest number of files on a page of GET /v1/files.
const (
	defaultFiles = 10_000
	maxFiles     = 10_000
)

// viewFile returns a file as OpenAI's API shows it. The field status is deprecated at
// OpenAI, but wait_for_processing of the Python client polls it.
func viewFile(f store.File) client.File {
	return client.File{
		ID: f.ID, Object: "file", Bytes: f.Size, CreatedAt: f.Created.Unix(), ExpiresAt: unixTime(f.Expires),
		Filename: f.Name, Purpose: f.Purpose, Status: "processed",
	}
}

// isExpired reports whether a file has expired.
func (d *Dialect) isExpired(f store.File) bool {
	return f.Expires != nil && !d.Now().Before(*f.Expires)
}

// isFileID reports whether id has the form of a file id.
func isFileID(id string) bool {
	hex, found := strings.CutPrefix(id, prefixFile)
	return found && batch.IsUUIDHex(hex)
}

// findFile returns the record of a file of the caller's account, or a 404. It also
// returns a file that has expired.
func (d *Dialect) findFile(c *gin.Context, id string) (store.File, error) {
	none := batch.NotFoundError("file", textfmt.Shorten(id, 64))
	if err := caller.CheckOwnAccount(c); err != nil {
		return store.File{}, err
	}
	if !isFileID(id) {
		return store.File{}, none
	}
	f, err := d.Store.GetFile(c.Request.Context(), id)
	if errors.Is(err, rowmill.ErrNotFound) || err == nil && f.Account != caller.PrincipalOf(c).Account {
		return store.File{}, none
	}
	if err != nil {
		return store.File{}, fmt.Errorf("read the record of a file: %w", err)
	}
	return f, nil
}

// findUnexpiredFile returns a file of the account that has not expired, or a 404.
func (d *Dialect) findUnexpiredFile(c *gin.Context, id string) (store.File, error) {
	f, err := d.findFile(c, id)
	if err == nil && d.isExpired(f) {
		err = batch.NotFoundError("file", f.ID)
	}
	return f, err
}

// showFile answers GET /v1/files/{file_id} with the description of a file.
func (d *Dialect) showFile(c *gin.Context) (any, error) {
	f, err := d.findUnexpiredFile(c, c.Param("file_id"))
	return viewFile(f), err
}

// sendFileContent answers GET /v1/files/{file_id}/content with the bytes of a file.
func (d *Dialect) sendFileContent(c *gin.Context) error {
	f, err := d.findUnexpiredFile(c, c.Param("file_id"))
	if err != nil {
		return err
	}
	object, err := d.Bucket.Open(c.Request.Context(), f.Key)
	if errors.Is(err, rowmill.ErrNotFound) { // retention removed the data of the batch that made the file
		return batch.NotFoundError("file", f.ID)
	}
	if err != nil {
		return fmt.Errorf("open a file: %w", err)
	}
	defer object.Close()
	d.Exchange.SendObject(c, object, layout.Bytes, f.Name)
	return nil
}

// deleteFile answers DELETE /v1/files/{file_id}. A batch that uses the file continues
// with its own copy. A file that a batch made is removed later, with the results of the
// batch's job.
func (d *Dialect) deleteFile(c *gin.Context) (any, error) {
	f, err := d.findUnexpiredFile(c, c.Param("file_id"))
	if err != nil {
		return nil, err
	}
	ctx := context.WithoutCancel(c.Request.Context())
	if err := d.Store.DeleteFile(ctx, f.ID); err != nil && !errors.Is(err, rowmill.ErrNotFound) {
		return nil, fmt.Errorf("delete the record of a file: %w", err)
	}
	if f.Job == "" {
		if err := d.Bucket.Delete(ctx, f.Key); err != nil {
			d.Exchange.Logger.Warn("removing the object of a deleted file failed, retention removes it later", exchange.KeyRequest, exchange.RequestID(c), exchange.KeyErr, err)
		}
	}
	return gin.H{"id": f.ID, "object": "file", "deleted": true}, nil
}

// queryPage reads the query parameters that select a page of a list, except the cursor.
// byDefault and maxLimit are the default and the largest number of elements on a page.
func queryPage(c *gin.Context, p *request.Problems, byDefault, maxLimit int64) store.PageRequest {
	asked := store.PageRequest{Limit: int(exchange.QueryInt(c, p, "limit", byDefault, 1, maxLimit))}
	switch order := c.DefaultQuery("order", "desc"); order {
	case "desc":
	case "asc":
		asked.Ascending = true
	default:
		p.Add("order", "is %q; it must be asc or desc", textfmt.Shorten(order, 32))
	}
	if _, given := c.GetQuery("before"); given {
		p.Add("before", "cannot be used with this list; use after instead, and order=asc for the other direction")
	}
	return asked
}

// listFiles answers GET /v1/files with a page of the account's files.
func (d *Dialect) listFiles(c *gin.Context) (any, error) {
	var p request.Problems
	asked := queryPage(c, &p, defaultFiles, maxFiles)
	if asked.After = c.Query("after"); asked.After != "" && !isFileID(asked.After) {
		p.Add("after", "is %q, which is not the id of a file; send the id of the last file of the previous page", textfmt.Shorten(asked.After, 64))
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	account, err := caller.ResolveReadAccountOrAll(c)
	if err != nil {
		return nil, err
	}
	if asked.After != "" {
		if err := d.checkCursor(c, account, asked.After); err != nil {
			return nil, batch.AddNotFoundField(err, "after")
		}
	}
	accounts := []string{account}
	if account == "" {
		if accounts, err = d.Store.Accounts(c.Request.Context()); err != nil {
			return nil, err
		}
	}
	files, more, err := batch.ReadVisiblePage(asked, d.isExpired, func(f store.File) string { return f.ID }, func(page store.PageRequest) ([]store.File, bool, error) {
		return d.readFiles(c.Request.Context(), accounts, c.Query("purpose"), page)
	})
	if err != nil {
		return nil, err
	}
	views := make([]client.File, len(files))
	for i, f := range files {
		views[i] = viewFile(f)
		if c.Query("account") != "" {
			views[i].Account = exchange.NilIfZero(f.Account)
		}
	}
	return newListPage(views, more, func(v client.File) string { return v.ID }), nil
}

// readFiles returns a page of the files of accounts.
func (d *Dialect) readFiles(ctx context.Context, accounts []string, purpose string, page store.PageRequest) (files []store.File, more bool, err error) {
	for _, account := range accounts {
		found, further, err := d.Store.ListFiles(ctx, account, purpose, page)
		if err != nil {
			return nil, false, err
		}
		files, more = append(files, found...), more || further
	}
	if len(accounts) > 1 {
		slices.SortFunc(files, func(a, b store.File) int {
			if page.Ascending {
				return strings.Compare(a.ID, b.ID)
			}
			return strings.Compare(b.ID, a.ID)
		})
	}
	kept := files[:min(page.Limit, len(files))]
	return kept, more || len(kept) < len(files), nil
}

// checkCursor returns an error if a cursor is not the id of a file of the account, or of any
// account if account is empty. It also accepts the id of a deleted file: a client that lists files and deletes each of
// them sends such an id as the cursor of the next page.
func (d *Dialect) checkCursor(c *gin.Context, account, id string) error {
	f, err := d.Store.GetFile(c.Request.Context(), id)
	gone := errors.Is(err, rowmill.ErrNotFound)
	if made, wrong := uuid.Parse(strings.TrimPrefix(id, prefixFile)); gone && wrong == nil && made.Version() == 7 {
		return nil
	}
	switch {
	case gone, err == nil && account != "" && f.Account != account:
		return batch.NotFoundError("file", textfmt.Shorten(id, 64))
	case err != nil:
		return fmt.Errorf("read the record of a file: %w", err)
	}
	return nil
}

// newListPage returns a page of a list as OpenAI's API shows it. If the page is empty,
// first_id and last_id are empty texts: clients do not accept null and, in a list of
// files, need both fields.
func newListPage[T any](data []T, more bool, id func(T) string) gin.H {
	body := gin.H{"object": "list", "data": data, "has_more": more, "first_id": "", "last_id": ""}
	if len(data) > 0 {
		body["first_id"], body["last_id"] = id(data[0]), id(data[len(data)-1])
	}
	return body
}

// createRecord stores the record of a new file.
func (d *Dialect) createRecord(ctx context.Context, f store.File) error {
	f.Created = f.Created.UTC().Truncate(time.Second)
	if err := d.Store.CreateFile(ctx, f); err != nil {
		return fmt.Errorf("store the record of a file: %w", err)
	}
	return nil
}

// fileTooLargeError returns the error for a file that is larger than maxBytes.
func fileTooLargeError(maxBytes int64) error {
	return request.Errorf(http.StatusRequestEntityTooLarge, "file_too_large", "the file has more than %d bytes; split it", maxBytes).CloseConnection()
}
