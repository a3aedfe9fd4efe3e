package openai

import (
	"cmp"
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/http/batch"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/internal/textfmt"
	"github.com/rowmill/rowmill/store"
)

// An upload is a file that arrives in parts, one request per part. It consists of
// objects in the bucket and has no record, so any node can continue it. The file's id
// has the same digits as the upload's id, so a repeated request to complete the upload
// returns the same file.

const (
	// maxParts limits the parts of an upload, as S3 does for a multipart upload.
	maxParts = 10_000
	// maxUploadName limits the name of the file, in characters, as file systems do.
	maxUploadName = 255
	// maxUploadBody limits the body of a request to complete an upload, which lists the
	// file's parts, in bytes.
	maxUploadBody = 1 << 20
)

// Values of the field status of an upload.
const (
	uploadPending   = "pending"
	uploadCompleted = "completed"
	uploadCancelled = "cancelled"
	uploadExpired   = "expired"
)

const (
	prefixUpload = "upload_"
	prefixPart   = "part_"
)

// uploadHeader describes the file that an upload becomes. It is stored as an object
// when the upload begins.
type uploadHeader struct {
	Account  string        `json:"account"`
	Bytes    int64         `json:"bytes"`
	Filename string        `json:"filename"`
	Purpose  string        `json:"purpose"`
	Keep     time.Duration `json:"keep"` // how long the file is kept after Created, in nanoseconds
	Created  time.Time     `json:"created"`
}

// upload has the state of an upload: its status, its parts and its file.
type upload struct {
	id string
	uploadHeader
	status string
	file   *store.File // nil until the upload is completed
	parts  []blob.ObjectInfo
}

func (u *upload) expiresAt() time.Time { return u.Created.Add(layout.UploadLife) }

// view returns the upload as OpenAI's API shows it. The field parts does not exist in
// OpenAI's API.
func (u *upload) view() client.UploadState {
	v := client.UploadState{
		ID: u.id, Object: "upload", Bytes: u.Bytes, CreatedAt: u.Created.Unix(), ExpiresAt: u.expiresAt().Unix(),
		Filename: u.Filename, Purpose: u.Purpose, Status: u.status, Parts: []client.UploadPart{},
	}
	if u.file != nil {
		f := viewFile(*u.file)
		v.File = &f
	}
	for _, part := range u.parts {
		v.Parts = append(v.Parts, viewPart(u.id, part.Key[strings.LastIndexByte(part.Key, '/')+1:], part.Size))
	}
	return v
}

func viewPart(upload, id string, size int64) client.UploadPart {
	at, _ := layout.UploadStartTime(id) // UploadStartTime also reads part ids, which have the same form as upload ids
	return client.UploadPart{ID: id, Object: "upload.part", Bytes: size, CreatedAt: at.Unix(), UploadID: upload}
}

// fileIDOf returns the id of the file that an upload becomes.
func fileIDOf(uploadID string) string { return prefixFile + strings.TrimPrefix(uploadID, prefixUpload) }

// beginUpload answers POST /v1/uploads: it begins the upload of a file in parts.
func (d *Dialect) beginUpload(c *gin.Context) (any, error) {
	body, err := d.Exchange.ReadObject(c, exchange.SmallObject)
	if err != nil {
		return nil, err
	}
	u := upload{id: prefixUpload + batch.JobIDDigits(rowmill.NewJobID()), status: uploadPending}
	u.Account, u.Created, u.Keep = caller.PrincipalOf(c).Account, d.Now().UTC().Truncate(time.Second), defaultExpiry
	if body.Require("bytes", "a whole number", &u.Bytes, "say how many bytes the file has") && (u.Bytes < 1 || u.Bytes > d.Limits.UploadBytes) {
		body.AddProblem("bytes", "is %d; it must be from 1 to %d", u.Bytes, d.Limits.UploadBytes)
	}
	if body.Require("filename", "a string", &u.Filename, "give the file a name") && (u.Filename == "" || utf8.RuneCountInString(u.Filename) > maxUploadName) {
		body.AddProblem("filename", "must have 1 to %d characters", maxUploadName)
	}
	if body.Require("purpose", "a string", &u.Purpose, "it must be one of "+strings.Join(purposes, ", ")) {
		checkPurpose(body.Problems, u.Purpose)
	}
	var kind string
	body.Read("mime_type", "a string", &kind) // ignored: the content shows the type
	var seconds int64
	if readExpiry(&body, "expires_after", &seconds) {
		u.Keep = time.Duration(seconds) * time.Second
	}
	if err := body.Err(); err != nil {
		return nil, err
	}
	err = d.writeObject(c.Request.Context(), layout.UploadRecordKey(u.id), layout.JSON, func(w io.Writer) error { return json.NewEncoder(w).Encode(u.uploadHeader) })
	if err != nil {
		return nil, fmt.Errorf("begin an upload: %w", err)
	}
	return u.view(), nil
}

// writeObject stores an object with the content that fill writes. If fill or the commit fails, it
// stores nothing.
func (d *Dialect) writeObject(ctx context.Context, key, contentType string, fill func(io.Writer) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	w, err := d.Bucket.Create(ctx, key, contentType)
	if err != nil {
		return err
	}
	defer w.Abort()
	if err := fill(w); err != nil {
		return err
	}
	_, err = w.Commit()
	return err
}

// findUpload returns the upload whose id is in the path if it belongs to the caller's
// account, or a 404.
func (d *Dialect) findUpload(c *gin.Context) (*upload, error) {
	ctx, u := c.Request.Context(), &upload{id: c.Param("upload_id"), status: uploadPending}
	none := batch.NotFoundError("upload", textfmt.Shorten(u.id, 64))
	if digits, found := strings.CutPrefix(u.id, prefixUpload); !found || !batch.IsUUIDHex(digits) {
		return nil, none
	}
	object, err := d.Bucket.Open(ctx, layout.UploadRecordKey(u.id))
	if errors.Is(err, rowmill.ErrNotFound) {
		return nil, none
	}
	if err == nil {
		defer object.Close()
		err = json.NewDecoder(blob.NewReader(object)).Decode(&u.uploadHeader)
	}
	if err != nil {
		return nil, fmt.Errorf("read an upload: %w", err)
	}
	if u.Account != caller.PrincipalOf(c).Account {
		return nil, none
	}
	if u.parts, err = d.Bucket.List(ctx, layout.UploadPartsPrefix(u.id)); err != nil {
		return nil, fmt.Errorf("list the parts of an upload: %w", err)
	}
	return u, d.loadUploadStatus(ctx, u)
}

// loadUploadStatus sets the status of an upload that has ended. If the upload was completed,
// it also sets the upload's file.
func (d *Dialect) loadUploadStatus(ctx context.Context, u *upload) error {
	f, err := d.Store.GetFile(ctx, fileIDOf(u.id))
	if err == nil {
		if _, err = d.Bucket.Stat(ctx, f.Key); err == nil {
			u.status, u.file = uploadCompleted, &f
			return nil
		}
	}
	if !errors.Is(err, rowmill.ErrNotFound) {
		return fmt.Errorf("look up the file of an upload: %w", err)
	}
	_, err = d.Bucket.Stat(ctx, layout.UploadCancelledKey(u.id))
	switch {
	case err == nil:
		u.status = uploadCancelled
	case !errors.Is(err, rowmill.ErrNotFound):
		return fmt.Errorf("find out whether an upload was cancelled: %w", err)
	case !d.Now().Before(u.expiresAt()):
		u.status = uploadExpired
	}
	return nil
}

// checkPending returns an error if the upload has ended.
func (u *upload) checkPending() error {
	if u.status == uploadPending {
		return nil
	}
	return request.Errorf(http.StatusBadRequest, "upload_"+u.status, "the upload is %s; begin another upload", u.status)
}

// showUpload answers GET /v1/uploads/{upload_id} with the state of an upload.
func (d *Dialect) showUpload(c *gin.Context) (any, error) {
	u, err := d.findUpload(c)
	if err != nil {
		return nil, err
	}
	return u.view(), nil
}

// addPart answers POST /v1/uploads/{upload_id}/parts: it stores one part of the file.
func (d *Dialect) addPart(c *gin.Context) (any, error) {
	u, err := d.findUpload(c)
	if err == nil {
		err = u.checkPending()
	}
	if err != nil {
		return nil, err
	}
	// Allow more bytes than the file has: if the answer to a part is lost, the client sends
	// the part again and does not use the first copy.
	var received int64
	for _, part := range u.parts {
		received += part.Size
	}
	if len(u.parts) >= maxParts || received > 2*u.Bytes+d.Limits.FileBytes {
		return nil, request.Errorf(http.StatusBadRequest, "too_many_parts", "the upload has %d parts with %d bytes for a file of %d bytes, and accepts no more; complete it, or begin another upload", len(u.parts), received, u.Bytes)
	}
	parts, err := d.openForm(c, "the field data")
	if err != nil {
		return nil, err
	}
	id := prefixPart + batch.JobIDDigits(rowmill.NewJobID())
	var sent uploadForm
	err = d.writeObject(c.Request.Context(), layout.UploadPartsPrefix(u.id)+id, layout.Bytes, func(w io.Writer) (err error) {
		if sent, err = d.readForm(parts, "data", w); err == nil && !sent.hasFile {
			err = rowmill.Invalid("data", "is missing; send the part as the field data of the form")
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("store a part of an upload: %w", err)
	}
	return viewPart(u.id, id, sent.size), nil
}

// cancelUpload answers POST /v1/uploads/{upload_id}/cancel: it cancels an upload and
// removes its parts.
func (d *Dialect) cancelUpload(c *gin.Context) (any, error) {
	u, err := d.findUpload(c)
	if err != nil {
		return nil, err
	}
	if u.status == uploadCancelled {
		return u.view(), nil
	}
	if err := u.checkPending(); err != nil {
		return nil, err
	}
	ctx := context.WithoutCancel(c.Request.Context())
	if err = d.writeObject(ctx, layout.UploadCancelledKey(u.id), layout.Bytes, func(io.Writer) error { return nil }); err == nil {
		err = d.Bucket.DeletePrefix(ctx, layout.UploadPartsPrefix(u.id))
	}
	if err != nil {
		return nil, fmt.Errorf("cancel an upload: %w", err)
	}
	u.status, u.parts = uploadCancelled, nil
	return u.view(), nil
}

// completeUpload answers POST /v1/uploads/{upload_id}/complete: it joins the named parts,
// in their order, into a file. A repeated request returns the same file.
func (d *Dialect) completeUpload(c *gin.Context) (any, error) {
	body, err := d.Exchange.ReadObject(c, maxUploadBody)
	if err != nil {
		return nil, err
	}
	var ids []string
	var sum string
	body.Require("part_ids", "an array of strings", &ids, "name the parts in the order that they have in the file")
	body.Read("md5", "a string", &sum)
	if err := body.Err(); err != nil {
		return nil, err
	}
	u, err := d.findUpload(c)
	switch {
	case err != nil:
		return nil, err
	case u.status == uploadCompleted:
		return u.view(), nil
	}
	if err := u.checkPending(); err != nil {
		return nil, err
	}
	keys, err := u.partKeys(ids)
	if err != nil {
		return nil, err
	}
	// From here on, the file is made even if the client disconnects. A repeated request
	// then finds the file.
	ctx := context.WithoutCancel(c.Request.Context())
	err = d.joinParts(ctx, u, keys, sum)
	if errors.Is(err, rowmill.ErrNotFound) { // another request has ended the upload meanwhile and removed its parts
		if err := d.loadUploadStatus(ctx, u); err != nil {
			return nil, err
		}
	}
	if u.status != uploadCompleted {
		return nil, cmp.Or(u.checkPending(), err)
	}
	if err := d.Bucket.DeletePrefix(ctx, layout.UploadPartsPrefix(u.id)); err != nil {
		d.Exchange.Logger.Warn("removing the parts of a completed upload failed, they expire later", exchange.KeyRequest, exchange.RequestID(c), exchange.KeyErr, err)
	}
	u.parts = nil
	return u.view(), nil
}

// partKeys returns the object keys of the named parts. It returns an error if the parts
// together do not have the size of the whole file.
func (u *upload) partKeys(ids []string) (keys []string, err error) {
	var total int64
	for i, id := range ids {
		key := layout.UploadPartsPrefix(u.id) + id
		at := slices.IndexFunc(u.parts, func(part blob.ObjectInfo) bool { return part.Key == key })
		switch {
		case at < 0:
			return nil, rowmill.Invalid("part_ids", "names %q, which is not a part of this upload", textfmt.Shorten(id, 64))
		case slices.Contains(ids[:i], id):
			return nil, rowmill.Invalid("part_ids", "names %q twice", id)
		}
		total += u.parts[at].Size
		keys = append(keys, key)
	}
	if total != u.Bytes {
		return nil, rowmill.Invalid("part_ids", "name parts with %d bytes, but the upload was begun for a file of %d bytes", total, u.Bytes)
	}
	return keys, nil
}

// joinParts joins parts of an upload into one file. keys are the object keys of the parts.
// wantMD5 is the MD5 sum that the client expects, or empty.
func (d *Dialect) joinParts(ctx context.Context, u *upload, keys []string, wantMD5 string) error {
	until := u.Created.Add(u.Keep)
	f := store.File{
		ID: fileIDOf(u.id), Account: u.Account, Purpose: u.Purpose, Name: u.Filename, Size: u.Bytes,
		Created: u.Created, Expires: &until, Key: layout.FileKey(fileIDOf(u.id)),
	}
	err := d.writeObject(ctx, f.Key, layout.Bytes, func(w io.Writer) error {
		digest := md5.New()
		for _, key := range keys {
			if err := d.copyPart(ctx, io.MultiWriter(w, digest), key); err != nil {
				return err
			}
		}
		if got := hex.EncodeToString(digest.Sum(nil)); wantMD5 != "" && !strings.EqualFold(wantMD5, got) {
			return rowmill.Invalid("md5", "is %s, but the parts in this order have the sum %s; send the damaged parts again, or name the parts in the order of the file", textfmt.Shorten(wantMD5, 64), got)
		}
		// Store the record first, as for a file in one request. A concurrent request that
		// completes the same upload writes the same record and, except for the order of its
		// parts, the same file.
		return d.createRecord(ctx, f)
	})
	if err != nil {
		return fmt.Errorf("join the parts of an upload: %w", err)
	}
	u.status, u.file = uploadCompleted, &f
	return nil
}

func (d *Dialect) copyPart(ctx context.Context, w io.Writer, key string) error {
	object, err := d.Bucket.Open(ctx, key)
	if err != nil {
		return err
	}
	defer object.Close()
	_, err = io.Copy(w, blob.NewReader(object))
	return err
}
