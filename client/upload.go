package client

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
)

// partSize is how much of a file is sent at once, bytes: what a connection that
// breaks costs, and how finely progress is told.
const partSize = 16 << 20

// An Upload is a file to bring to the service, in parts.
type Upload struct {
	Name string
	Size int64 // bytes
	File io.ReaderAt

	// From is where an earlier upload of the same file stopped, as Save was told;
	// the zero value begins a new one. What has come already is not sent again.
	From Uploaded
	Save func(Uploaded) // may be nil

	Progress func(done, total int64) // may be nil
}

// Uploaded is what has come of a file.
type Uploaded struct {
	Upload string   `json:"upload"` // id
	Part   int64    `json:"part"`   // bytes of each part but the last
	Parts  []string `json:"parts"`  // ids of the first ones
}

// uploadState is an upload as the service shows it.
type uploadState struct {
	ID     string  `json:"id"`
	Status string  `json:"status"`
	File   *named  `json:"file"` // nil until it is completed
	Parts  []named `json:"parts"`
}

type named struct {
	ID string `json:"id"`
}

// Upload brings a file to the service and returns its id there, which "file:"
// before makes the URL of a Submission. It may be deleted once the job is created.
func (c *Client) Upload(ctx context.Context, u Upload) (file string, err error) {
	if u.Save == nil {
		u.Save = func(Uploaded) {}
	}
	if u.Progress == nil {
		u.Progress = func(int64, int64) {}
	}
	have, file, err := c.continued(ctx, u.From)
	if err != nil || file != "" {
		return file, err
	}
	if have.Upload == "" {
		if have, err = c.begin(ctx, u); err != nil {
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
	made, err := c.postUpload(ctx, "/v1/uploads/"+have.Upload+"/complete", map[string]any{"part_ids": have.Parts, "md5": hex.EncodeToString(sum.Sum(nil))})
	if err == nil && made.File == nil {
		err = &UnreachableError{Server: c.base, Err: errors.New("its answer names no file")}
	}
	if err != nil {
		return "", fmt.Errorf("upload %s: %w", u.Name, err)
	}
	return made.File.ID, nil
}

// DeleteFile removes a file from the service.
func (c *Client) DeleteFile(ctx context.Context, id string) error {
	req, err := c.request(ctx, http.MethodDelete, "/v1/files/"+url.PathEscape(id), nil, nil)
	if err != nil {
		return err
	}
	_, err = c.exchange(req, &struct{}{})
	return err
}

// continued is what there still is of an earlier upload, or the file that it became.
func (c *Client) continued(ctx context.Context, from Uploaded) (have Uploaded, file string, err error) {
	if from.Upload == "" || from.Part < 1 {
		return Uploaded{}, "", nil
	}
	var state uploadState
	err = c.cfg.Retry.Do(ctx, func() error {
		return c.get(ctx, "/v1/uploads/"+url.PathEscape(from.Upload), nil, &state)
	}, Passing, nil)
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
	for i, id := range from.Parts {
		if !slices.Contains(state.Parts, named{id}) {
			from.Parts = from.Parts[:i]
			break
		}
	}
	return from, "", nil
}

func (c *Client) begin(ctx context.Context, u Upload) (Uploaded, error) {
	made, err := c.postUpload(ctx, "/v1/uploads", map[string]any{"bytes": u.Size, "filename": u.Name, "purpose": "user_data"})
	if err != nil {
		return Uploaded{}, fmt.Errorf("begin the upload of %s: %w", u.Name, err)
	}
	return Uploaded{Upload: made.ID, Part: partSize}, nil
}

// postUpload sends a step of an upload, as often as it takes: each may be repeated.
func (c *Client) postUpload(ctx context.Context, path string, body any) (state uploadState, err error) {
	content, err := json.Marshal(body)
	if err != nil {
		return state, fmt.Errorf("encode a step of an upload: %w", err)
	}
	err = c.cfg.Retry.Do(ctx, func() error {
		req, err := c.request(ctx, http.MethodPost, path, nil, bytes.NewReader(content))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		state = uploadState{}
		return c.patient(req, &state)
	}, Passing, nil)
	return state, err
}

// sendPart sends a part, as often as it takes, and returns its id.
func (c *Client) sendPart(ctx context.Context, upload string, part *io.SectionReader) (id string, err error) {
	var form bytes.Buffer
	fields := multipart.NewWriter(&form)
	if _, err := fields.CreateFormFile("data", "part"); err != nil {
		return "", fmt.Errorf("make a form: %w", err)
	}
	head := bytes.Clone(form.Bytes())
	form.Reset()
	if err := fields.Close(); err != nil {
		return "", fmt.Errorf("make a form: %w", err)
	}
	tail := form.Bytes()
	err = c.cfg.Retry.Do(ctx, func() error {
		body := io.MultiReader(bytes.NewReader(head), io.NewSectionReader(part, 0, part.Size()), bytes.NewReader(tail))
		req, err := c.request(ctx, http.MethodPost, "/v1/uploads/"+url.PathEscape(upload)+"/parts", nil, body)
		if err != nil {
			return err
		}
		req.ContentLength = int64(len(head)) + part.Size() + int64(len(tail))
		req.Header.Set("Content-Type", fields.FormDataContentType())
		var made named
		err = c.patient(req, &made)
		id = made.ID
		return err
	}, Passing, nil)
	return id, err
}

// patient is exchange for what takes as long as it takes.
func (c *Client) patient(req *http.Request, into any) error {
	resp, err := c.do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return c.decode(req.Context(), resp, into)
}
