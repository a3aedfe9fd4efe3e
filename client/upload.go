package client

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
)

// partSize is the size of an uploaded part in bytes. After a broken connection only one
// part is sent again. Progress is reported per part.
const partSize = 16 << 20

// An Upload is a file to upload in parts.
type Upload struct {
	Name string
	Size int64 // size of the file in bytes
	File io.ReaderAt

	// From is the state of an earlier upload of the same file, as Save received it.
	// Parts that are uploaded already are not sent again. The zero value means a new
	// upload.
	From Uploaded
	// Save is called with the new state when the upload begins and after each part, so
	// that a later Upload can continue. It may be nil.
	Save func(Uploaded)

	Progress func(done, total int64) // called after each part with the bytes uploaded so far; may be nil
}

// Uploaded is the state of an upload, which the caller can save to continue the upload
// later.
type Uploaded struct {
	Upload string   `json:"upload"` // id of the upload
	Part   int64    `json:"part"`   // bytes per part, except the last
	Parts  []string `json:"parts"`  // ids of the uploaded parts, in order
}

// Upload uploads a file and returns the file's id. A Submission uses the file with the URL
// "file:" followed by the id. The file may be deleted once the job is created.
func (c *Client) Upload(ctx context.Context, u Upload) (file string, err error) {
	if u.Save == nil {
		u.Save = func(Uploaded) {}
	}
	if u.Progress == nil {
		u.Progress = func(int64, int64) {}
	}
	have, file, err := c.resumeUpload(ctx, u.From)
	if err != nil || file != "" {
		return file, err
	}
	if have.Upload == "" {
		if have, err = c.beginUpload(ctx, u); err != nil {
			return "", err
		}
		u.Save(have)
	}
	for {
		done := min(u.Size, have.Part*int64(len(have.Parts)))
		if u.Progress(done, u.Size); done == u.Size {
			break
		}
		part := io.NewSectionReader(u.File, done, min(have.Part, u.Size-done))
		id, err := c.sendPart(ctx, have.Upload, part)
		if err != nil {
			return "", fmt.Errorf("upload %s: %w", u.Name, err)
		}
		have.Parts = append(have.Parts, id)
		u.Save(have)
	}
	sum := md5.New()
	if _, err := io.Copy(sum, io.NewSectionReader(u.File, 0, u.Size)); err != nil {
		return "", fmt.Errorf("read %s: %w", u.Name, err)
	}
	made, err := c.retryUpload(ctx, func() (UploadState, Answer, error) {
		return c.CompleteUpload(ctx, have.Upload, CompletedUpload{PartIDs: have.Parts, MD5: new(hex.EncodeToString(sum.Sum(nil)))})
	})
	if err == nil && made.File == nil {
		err = &UnreachableError{Server: c.base, Err: errors.New("the answer has no file")}
	}
	if err != nil {
		return "", fmt.Errorf("upload %s: %w", u.Name, err)
	}
	return made.File.ID, nil
}

// resumeUpload returns the state of an earlier upload, with the parts that the service still
// has. If the upload was completed, it returns the id of the file. If a new upload is
// needed, it returns a zero Uploaded.
func (c *Client) resumeUpload(ctx context.Context, earlier Uploaded) (have Uploaded, fileID string, err error) {
	if earlier.Upload == "" || earlier.Part < 1 {
		return Uploaded{}, "", nil
	}
	state, err := c.retryUpload(ctx, func() (UploadState, Answer, error) { return c.ShowUpload(ctx, earlier.Upload) })
	var refused *APIError
	switch {
	case errors.As(err, &refused) && refused.Status == http.StatusNotFound:
		return Uploaded{}, "", nil
	case err != nil:
		return have, "", err
	case state.File != nil:
		return have, state.File.ID, nil
	case state.Status != "pending":
		return Uploaded{}, "", nil
	}
	for i, id := range earlier.Parts {
		if !slices.ContainsFunc(state.Parts, func(p UploadPart) bool { return p.ID == id }) {
			earlier.Parts = earlier.Parts[:i]
			break
		}
	}
	return earlier, "", nil
}

// beginUpload starts a new upload.
func (c *Client) beginUpload(ctx context.Context, u Upload) (Uploaded, error) {
	made, err := c.retryUpload(ctx, func() (UploadState, Answer, error) {
		return c.BeginUpload(ctx, NewUpload{Bytes: u.Size, Filename: u.Name, Purpose: "user_data"})
	})
	if err != nil {
		return Uploaded{}, fmt.Errorf("begin the upload of %s: %w", u.Name, err)
	}
	return Uploaded{Upload: made.ID, Part: partSize}, nil
}

// retryUpload calls ask, which returns the state of an upload, and retries temporary
// errors as Config.Retry says.
func (c *Client) retryUpload(ctx context.Context, ask func() (UploadState, Answer, error)) (state UploadState, err error) {
	err = c.cfg.Retry.Do(ctx, func() (err error) {
		state, _, err = ask()
		return err
	}, Temporary, nil)
	return state, err
}

// sendPart uploads a part of the file, and returns the part's id. It retries temporary
// errors.
func (c *Client) sendPart(ctx context.Context, uploadID string, part *io.SectionReader) (id string, err error) {
	var form bytes.Buffer
	fields := multipart.NewWriter(&form)
	if _, err := fields.CreateFormFile("data", "part"); err != nil {
		return "", fmt.Errorf("create a form: %w", err)
	}
	head := bytes.Clone(form.Bytes())
	form.Reset()
	if err := fields.Close(); err != nil {
		return "", fmt.Errorf("create a form: %w", err)
	}
	tail := form.Bytes()
	err = c.cfg.Retry.Do(ctx, func() error {
		body := io.MultiReader(bytes.NewReader(head), io.NewSectionReader(part, 0, part.Size()), bytes.NewReader(tail))
		req, err := c.newRequest(ctx, http.MethodPost, "/v1/uploads/"+url.PathEscape(uploadID)+"/parts", nil, body)
		if err != nil {
			return err
		}
		req.ContentLength = int64(len(head)) + part.Size() + int64(len(tail))
		req.Header.Set("Content-Type", fields.FormDataContentType())
		var made UploadPart
		_, err = c.sendAndDecode(req, 0, &made)
		id = made.ID
		return err
	}, Temporary, nil)
	return id, err
}
