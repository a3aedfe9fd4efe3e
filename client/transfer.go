package client

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

// A resultDownload downloads one Parquet object into a file.
//
//	results-url ─► HEAD (ETag, size) ─► GET from the end of .part ─► rename
//	     ▲                                      │ broken, expired, replaced
//	     └──────────────────────────────────────┘
//
// The name of the .part file contains a hash of the ETag, so that a later run only
// appends bytes of the same object.
type resultDownload struct {
	client   *Client
	id       string
	want     Results
	path     string
	progress func(done, total int64)

	urls     ResultsURL // signed URLs; empty: request new ones. They are credentials: never print them
	received int64      // bytes received since run began
}

// errStale means that the object was replaced or its URL has expired, so the transfer
// needs new URLs.
var errStale = errors.New("the download link is out of date")

// download downloads the object and returns its size. While attempts receive bytes, it
// retries without a limit; otherwise as Config.Retry says.
func (t *resultDownload) download(ctx context.Context) (size int64, err error) {
	for again := true; again; {
		attempts := 0
		again = false
		err = t.client.cfg.Retry.Do(ctx, func() error {
			attempts++
			before := t.received
			size, err = t.downloadOnce(ctx)
			if errors.Is(err, errStale) {
				t.urls = ResultsURL{}
			}
			if again = isResumable(err) && t.received > before && ctx.Err() == nil; again {
				return nil // bytes arrived, so resume at once, with a new count of attempts
			}
			return err
		}, isResumable, nil)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return 0, context.Cause(ctx)
		case isResumable(err):
			return 0, fmt.Errorf("gave up after %d attempts without progress; repeat the command to resume the download: %w", attempts, err)
		}
	}
	return size, err
}

// isResumable reports whether another attempt may fetch the missing bytes.
func isResumable(err error) bool { return err != nil && (errors.Is(err, errStale) || Temporary(err)) }

// downloadOnce tries once to download the missing bytes, and completes the file.
func (t *resultDownload) downloadOnce(ctx context.Context) (size int64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if t.urls.URLs.Get == "" {
		// The first request for a variant of the results may take a while, because the
		// service then creates the file.
		r := call{operation: "GetResultsURL", method: http.MethodGet, path: "/v1/jobs/" + escape(t.id) + "/results-url", query: t.want.queryParams()}
		if _, err = t.client.send(ctx, r, &t.urls); err != nil {
			return 0, err
		}
	}
	etag, size, err := t.fetchObjectInfo(ctx)
	if err != nil {
		return 0, err
	}
	part, err := t.openPartFile(etag)
	if err != nil {
		return 0, fmt.Errorf("save the results: %w", err)
	}
	defer part.Close()
	have, err := part.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, fmt.Errorf("save the results: %w", err)
	}
	if have < size {
		if have, err = t.fetchMissingBytes(ctx, cancel, part, etag, have, size); err != nil {
			return 0, err
		}
	}
	if have != size {
		part.Close()
		os.Remove(part.Name()) // the size is wrong, so start again with an empty file
		return 0, fmt.Errorf("%w: received %d bytes, expected %d", errStale, have, size)
	}
	t.progress(size, size)
	return size, publishPart(part, t.path)
}

// fetchObjectInfo requests the object's ETag and size.
func (t *resultDownload) fetchObjectInfo(ctx context.Context) (etag string, size int64, err error) {
	resp, err := t.sendSigned(ctx, http.MethodHead, t.urls.URLs.Head, nil)
	if err != nil {
		return "", 0, err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", 0, decodeSignedError(resp)
	}
	etag, size = resp.Header.Get("ETag"), resp.ContentLength
	if size < 0 {
		return "", 0, errors.New("the object store does not report the size of the results")
	}
	return etag, size, nil
}

// fetchMissingBytes appends the missing bytes to part and returns the new size of part. have is the
// present size of part, and size is the size of the object, both in bytes.
func (t *resultDownload) fetchMissingBytes(ctx context.Context, cancel context.CancelCauseFunc, part *os.File, etag string, have, size int64) (int64, error) {
	header := http.Header{}
	if have > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", have))
		header.Set("If-Range", etag)
	}
	resp, err := t.sendSigned(ctx, http.MethodGet, t.urls.URLs.Get, header)
	if err != nil {
		return have, err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusPartialContent && strings.HasPrefix(resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", have)):
	case resp.StatusCode == http.StatusOK && resp.Header.Get("ETag") == etag:
		if err := part.Truncate(0); err != nil { // the answer is the whole object
			return have, fmt.Errorf("save the results: %w", err)
		}
		have = 0
	case resp.StatusCode == http.StatusOK, resp.StatusCode == http.StatusPartialContent:
		os.Remove(part.Name()) // the .part file contains bytes of the old object
		return have, fmt.Errorf("%w: the object was replaced", errStale)
	default:
		return have, decodeSignedError(resp)
	}
	n, err := t.client.copyBody(ctx, cancel, part, resp.Body, func(n int64) { t.progress(have+n, size) })
	t.received += n
	return have + n, err
}

// sendSigned sends a request to a signed URL. It does not send the API key, because the
// object store refuses a request with another credential.
func (t *resultDownload) sendSigned(ctx context.Context, method, address string, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return nil, errors.New("the service's download link is not a valid URL") // do not quote the link: it contains a signature
	}
	if header != nil {
		req.Header = header
	}
	req.Header.Set("User-Agent", t.client.cfg.UserAgent)
	resp, err := t.client.http.Do(req)
	if err != nil {
		err = t.client.wrapSendError(ctx, err)
		var unreachable *UnreachableError
		if errors.As(err, &unreachable) {
			unreachable.Server = req.URL.Scheme + "://" + req.URL.Host
		}
		return nil, err
	}
	return resp, nil
}

// decodeSignedError returns the error for a refused request to a signed URL. Most refusals mean
// that the URL has expired.
func decodeSignedError(resp *http.Response) error {
	switch resp.StatusCode {
	case http.StatusForbidden, http.StatusNotFound, http.StatusPreconditionFailed, http.StatusRequestedRangeNotSatisfiable:
		return fmt.Errorf("%w (%s)", errStale, resp.Status)
	}
	return decodeAPIError(resp)
}

// openPartFile opens the .part file of an object for appending.
func (t *resultDownload) openPartFile(etag string) (*os.File, error) {
	sum := sha256.Sum256([]byte(etag))
	name := fmt.Sprintf("%s.%x.part", t.path, sum[:4])
	if etag == "" || strings.HasPrefix(etag, "W/") {
		os.Remove(name) // without a strong ETag the bytes may come from another object
	}
	return os.OpenFile(name, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
}
