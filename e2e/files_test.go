package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/rowmill/rowmill/internal/must"
)

// csvOf returns a CSV file of rows rows with the columns id and text.
func csvOf(t *testing.T, rows int) []byte {
	t.Helper()
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	must.Succeed(t, w.Write([]string{"id", "text"}))
	for i := range rows {
		must.Succeed(t, w.Write([]string{strconv.Itoa(i), rowText(i)}))
	}
	w.Flush()
	return out.Bytes()
}

// parquetOf returns the same rows as Parquet.
func parquetOf(t *testing.T, rows int) []byte {
	t.Helper()
	type row struct {
		ID   int64  `parquet:"id"`
		Text string `parquet:"text"`
	}
	all := make([]row, rows)
	for i := range all {
		all[i] = row{int64(i), rowText(i)}
	}
	var out bytes.Buffer
	must.Succeed(t, parquet.Write(&out, all))
	return out.Bytes()
}

func gzipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	must.Get(w.Write(data))(t)
	must.Succeed(t, w.Close())
	return out.Bytes()
}

// serveBytes serves one file and returns its URL.
func serveBytes(t *testing.T, data []byte) string {
	t.Helper()
	return serve(t, func(out http.ResponseWriter, _ *http.Request) {
		out.Header().Set("Content-Length", strconv.Itoa(len(data)))
		_, _ = out.Write(data) // fails if the node was killed
	})
}

func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL + "/input"
}

// serveSlowly serves the first half of a file, closes begun, and then sends nothing
// until the test ends or the client disconnects.
func serveSlowly(t *testing.T, data []byte) (url string, begun <-chan struct{}) {
	t.Helper()
	first, over := make(chan struct{}), make(chan struct{})
	var once sync.Once
	url = serve(t, func(out http.ResponseWriter, request *http.Request) {
		out.Header().Set("Content-Length", strconv.Itoa(len(data)))
		if _, err := out.Write(data[:len(data)/2]); err != nil {
			return
		}
		if err := http.NewResponseController(out).Flush(); err != nil {
			return
		}
		once.Do(func() { close(first) })
		select {
		case <-over:
		case <-request.Context().Done():
		}
	})
	// This runs before the server closes, because closing waits for the handler.
	t.Cleanup(func() { close(over) })
	return url, first
}
