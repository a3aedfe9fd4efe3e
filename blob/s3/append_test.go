package s3

import (
	"bytes"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/s3test"
)

// The server must copy ranges that are long enough. If it refuses, it must not
// be asked again. The first three copies test whether parts may have different
// lengths.
func TestAppend_LetsTheServerCopy(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	content := random(6 * minPartSize)
	for name, c := range map[string]struct {
		fault    fault
		from, to int   // number of copy requests
		most     int64 // uploaded bytes
	}{
		"it copies":    {nil, 6, 6, minPartSize + 1000},
		"it fails":     {first(2, copyObject, refusal(http.StatusServiceUnavailable, "SlowDown")), 8, 8, minPartSize + 1000},
		"it is silent": {first(1, copyObject, lostAnswer), 7, 7, minPartSize + 1000},
		"it refuses":   {first(1000, copyObject, refusal(http.StatusNotImplemented, "NotImplemented")), 1, 1, 18*minPartSize + 1000},
		// When a copy is refused, the copy of the next range may already be running.
		"it refuses long ones": {
			when(func(r *http.Request) bool { return isCopy(r) && copiedBytes(r) > 2*minPartSize }, refusal(http.StatusBadRequest, "InvalidRequest")), 4, 6, 18*minPartSize + 1000,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, b := through(t, server, nil)
			must.Succeed(t, put(t.Context(), b, "parts/a", content))
			o := must.Get(b.Open(t.Context(), "parts/a"))(t)
			defer func() { _ = o.Close() }()
			var uploaded atomic.Int64
			p.inject(func(w http.ResponseWriter, r *http.Request, forward http.Handler) bool {
				if operation(r) == "UploadPart" || operation(r) == "PutObject" {
					uploaded.Add(r.ContentLength)
				}
				return c.fault != nil && c.fault(w, r, forward)
			})
			w := must.Get(b.Create(t.Context(), "results/a", ""))(t)
			defer w.Abort()
			must.Get(w.Write([]byte("head")))(t)
			want := []byte("head")
			for range 3 {
				must.Succeed(t, w.(blob.Appender).Append(o, 0, o.Size()))
				want = append(want, content...)
			}
			must.Get(w.Write([]byte("foot")))(t)
			want = append(want, "foot"...)
			must.Get(w.Commit())(t)
			if copies := p.count(copyObject); copies < c.from || copies > c.to || uploaded.Load() > c.most {
				t.Errorf("%d requests to copy and %d bytes uploaded, want %d to %d and at most %d", copies, uploaded.Load(), c.from, c.to, c.most)
			}
			if got, err := get(t.Context(), b, "results/a"); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes, want %d: %v", len(got), len(want), err)
			}
		})
	}
}
