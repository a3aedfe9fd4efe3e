package dir

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
)

// requestIDHeader is the response header with the ID of the request. An outer handler
// may have set it.
const requestIDHeader = "X-Request-Id"

// Handler serves objects to requests with signed URLs, under the path pathPrefix. It
// never redirects and never compresses.
func (b *Bucket) Handler() http.Handler { return http.HandlerFunc(b.serve) }

func (b *Bucket) serve(w http.ResponseWriter, r *http.Request) {
	if w.Header().Get(requestIDHeader) == "" {
		w.Header().Set(requestIDHeader, uuid.NewString())
	}
	if len(r.Header.Values("Authorization")) > 0 {
		writeError(w, http.StatusBadRequest, "authorization_not_allowed",
			"A signed URL is its own credential: repeat the request without the Authorization header, and do not send API keys to object URLs.")
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		writeError(w, http.StatusMethodNotAllowed, "method_not_allowed", "Objects can be read with GET and HEAD only.")
		return
	}
	key, ok := strings.CutPrefix(r.URL.Path, pathPrefix)
	if !ok {
		writeError(w, http.StatusNotFound, "not_found", "There is nothing under this path.")
		return
	}
	granted, err := b.verify(r, key)
	if err != nil {
		writeError(w, http.StatusForbidden, "invalid_signature", "This URL does not grant access: "+err.Error()+". Ask for a new one.")
		return
	}
	if err := b.serveObject(w, r, granted); err != nil {
		if errors.Is(err, rowmill.ErrNotFound) {
			writeError(w, http.StatusNotFound, "not_found", "The object does not exist any more.")
			return
		}
		b.config.Logger.Error("object could not be served", slog.String("key", granted.key), slog.Any("err", err))
		writeError(w, http.StatusInternalServerError, "internal_error", "The object could not be read. Try again, or tell the operator the request id.")
	}
}

// serveObject sends an object. An error means that nothing was sent.
func (b *Bucket) serveObject(w http.ResponseWriter, r *http.Request, granted urlGrant) error {
	file, info, err := b.openFile(granted.key)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // the file was only read, so a failed Close loses no data
	contentType, err := b.readContentType(granted.key)
	if err != nil {
		return err
	}
	described := describe(granted.key, info)
	header := w.Header()
	header.Set("Content-Type", contentType)
	header.Set("Content-Disposition", blob.ContentDisposition(granted.filename))
	header.Set("ETag", described.ETag)
	header.Set("Cache-Control", "private, no-transform") // a proxy must not compress the object or share it between clients
	header.Set("X-Content-Type-Options", "nosniff")
	http.ServeContent(&rangeErrorWriter{ResponseWriter: w}, r, "", described.Modified, file)
	return nil
}

// rangeErrorWriter replaces the error body that http.ServeContent sends with status
// 416.
type rangeErrorWriter struct {
	http.ResponseWriter
	refused bool
}

func (w *rangeErrorWriter) WriteHeader(status int) {
	if status != http.StatusRequestedRangeNotSatisfiable {
		w.ResponseWriter.WriteHeader(status)
		return
	}
	w.refused = true
	w.Header().Del("Content-Disposition")
	writeError(w.ResponseWriter, status, "invalid_range", "The range does not lie within the object; Content-Range says how long it is.")
}

func (w *rangeErrorWriter) Write(p []byte) (int, error) {
	if w.refused {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}

// ReadFrom lets the server send a file without copying it through memory.
func (w *rangeErrorWriter) ReadFrom(r io.Reader) (int64, error) {
	if w.refused {
		return io.Copy(io.Discard, r)
	}
	return io.Copy(w.ResponseWriter, r)
}

// Unwrap returns the underlying writer for http.ResponseController.
func (w *rangeErrorWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// writeError sends an error body.
func writeError(w http.ResponseWriter, status int, code, message string) {
	body, err := json.Marshal(struct {
		Message   string `json:"message"`
		Detail    string `json:"detail"`
		Code      string `json:"code"`
		RequestID string `json:"request_id"`
	}{message, message, code, w.Header().Get(requestIDHeader)})
	if err != nil {
		panic(err) // four strings can always be encoded
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Del("Content-Length")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the client may have disconnected
}
