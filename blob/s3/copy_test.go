package s3

import (
	"bytes"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/s3test"
)

// An object that is too large for one request must be copied in ranges. The
// bytes must not pass through this process if the server copies ranges.
func TestCopyInRanges(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	content := random(3*minPartSize + 1)
	for name, c := range map[string]struct {
		quirk    fault
		uploaded int64
	}{
		"any lengths": {nil, 0},
		"one length":  {equalParts(), 1},
		"no copies":   {when(isCopy, refusal(http.StatusNotImplemented, "NotImplemented")), int64(len(content))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, b := through(t, server, nil)
			must.Succeed(t, put(t.Context(), b, "from", content))
			var uploaded atomic.Int64
			p.inject(func(w http.ResponseWriter, r *http.Request, forward http.Handler) bool {
				if operation(r) == "UploadPart" {
					uploaded.Add(r.ContentLength)
				}
				return c.quirk != nil && c.quirk(w, r, forward)
			})
			must.Succeed(t, b.compose(t.Context(), "from", "to", "text/csv"))
			found, err := b.stat(t.Context(), "to")
			if err != nil || found.ContentType != "text/csv" {
				t.Errorf("the copy: %+v, %v", found, err)
			}
			if got, err := get(t.Context(), b, "to"); err != nil || !bytes.Equal(got, content) {
				t.Errorf("the copy holds %d bytes, %v", len(got), err)
			}
			if n := uploaded.Load(); n != c.uploaded {
				t.Errorf("%d bytes were uploaded, want %d", n, c.uploaded)
			}
		})
	}
}
