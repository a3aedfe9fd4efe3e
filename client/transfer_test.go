package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/retry"
)

// An origin serves one object by signed URLs, and can break transfers.
type origin struct {
	t       *testing.T
	server  *httptest.Server
	content []byte
	etag    string
	cut     int         // bytes after which a transfer breaks; 0: never
	hook    func(n int) // called with the number of the GET, from 1
	expired atomic.Bool // answer 403 until new URLs are requested
	gets    atomic.Int32
	links   atomic.Int32
	ranges  []string

	mu sync.Mutex // held during a request, which may outlive its client
}

// change runs f between two requests.
func (o *origin) change(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f()
}

func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if strings.HasSuffix(r.URL.Path, "/results-url") {
		o.links.Add(1)
		o.expired.Store(false)
		fmt.Fprintf(w, `{"artifact":{"size_bytes":%d},"urls":{"get":"%[2]s/get?sig=1","head":"%[2]s/head?sig=2"}}`, len(o.content), o.server.URL)
		return
	}
	if r.Header.Get("Authorization") != "" {
		o.t.Error("the API key was sent to a signed URL")
	}
	if (r.Method == http.MethodGet) != (r.URL.Path == "/get") {
		o.t.Errorf("%s of %s", r.Method, r.URL.Path)
	}
	if r.Method == http.MethodGet {
		o.ranges = append(o.ranges, r.Header.Get("Range"))
		n := int(o.gets.Add(1))
		if o.hook != nil {
			o.hook(n)
		}
	}
	if o.expired.Load() {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	w.Header().Set("ETag", o.etag)
	if o.cut > 0 && r.Method == http.MethodGet {
		w = &cutter{w, o.cut}
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(o.content))
}

// cutter aborts the connection after left bytes.
type cutter struct {
	http.ResponseWriter
	left int
}

func (c *cutter) Write(p []byte) (int, error) {
	if len(p) > c.left {
		c.ResponseWriter.Write(p[:c.left])
		http.NewResponseController(c.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	c.left -= len(p)
	return c.ResponseWriter.Write(p)
}

func newOrigin(t *testing.T) (*origin, *Client, string) {
	t.Helper()
	o := &origin{t: t, content: make([]byte, 1<<20), etag: `"one"`}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range o.content {
		o.content[i] = byte(random.Uint32())
	}
	o.server = httptest.NewServer(o)
	t.Cleanup(o.server.Close)
	c := must.Get(New(Config{Server: o.server.URL, Key: "k", Retry: retry.Policy{First: time.Millisecond, Most: time.Second, Tries: 3}}))(t)
	t.Cleanup(c.Close)
	return o, c, filepath.Join(t.TempDir(), "out.parquet")
}

func (o *origin) check(path string, size int64, err error) {
	o.t.Helper()
	must.Succeed(o.t, err)
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, o.content) || size != int64(len(got)) {
		o.t.Fatalf("%d bytes, size %d, error %v; want %d bytes", len(got), size, err, len(o.content))
	}
	if parts := leftovers(o.t, path); len(parts) > 0 {
		o.t.Error("left behind:", parts)
	}
}

func leftovers(t *testing.T, path string) []string {
	t.Helper()
	parts := must.Get(filepath.Glob(path + ".*"))(t)
	return parts
}

var parquet = Results{Format: "parquet"}

func TestSave(t *testing.T) {
	t.Parallel()
	o, c, path := newOrigin(t)
	var last int64
	size, err := c.Save(t.Context(), "job-1", parquet, path, func(done, total int64) {
		if done < last || total != int64(len(o.content)) {
			t.Errorf("progress %d of %d after %d", done, total, last)
		}
		last = done
	})
	o.check(path, size, err)
	if last != size {
		t.Errorf("progress ended at %d", last)
	}
}

func TestSave_LaterRunResumes(t *testing.T) {
	t.Parallel()
	o, c, path := newOrigin(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	interrupted := errors.New("interrupted")
	o.cut = 400_000
	o.hook = func(n int) {
		if n == 2 {
			cancel(interrupted)
		}
	}
	if _, err := c.Save(ctx, "job-1", parquet, path, nil); !errors.Is(err, interrupted) {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Fatal("an incomplete file has the final name")
	}
	o.change(func() { o.cut, o.hook = 0, nil })
	size, err := c.Save(t.Context(), "job-1", parquet, path, nil)
	o.check(path, size, err)
	if last := o.ranges[len(o.ranges)-1]; last == "" {
		t.Errorf("the second run started from the beginning: %q", o.ranges)
	}
}

// A transfer breaks after 400,000 bytes, and Save fetches the rest.
func TestSave_BrokenTransfer(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		hook func(o *origin, n int) // runs between HEAD and GET number n
		link int32                  // requests for URLs
	}{
		{"only broken", func(*origin, int) {}, 1},
		{"the link expired", func(o *origin, n int) { o.expired.Store(n == 2) }, 2},
		{"the object was replaced", func(o *origin, n int) {
			if n == 2 {
				o.etag, o.content = `"two"`, o.content[100:900_100]
			}
		}, 2},
	} {
		o, c, path := newOrigin(t)
		o.cut, o.hook = 400_000, func(n int) { test.hook(o, n) }
		size, err := c.Save(t.Context(), "job-1", parquet, path, nil)
		o.check(path, size, err)
		if last := o.ranges[len(o.ranges)-1]; o.ranges[0] != "" || o.ranges[1] != "bytes=400000-" || last != "bytes=800000-" || o.links.Load() != test.link {
			t.Errorf("%s: %d links, ranges %q", test.name, o.links.Load(), o.ranges)
		}
	}
}

func TestSave_GivesUp(t *testing.T) {
	t.Parallel()
	o, c, path := newOrigin(t)
	o.hook = func(int) { panic(http.ErrAbortHandler) }
	_, err := c.Save(t.Context(), "job-1", parquet, path, nil)
	var unreachable *UnreachableError
	if !errors.As(err, &unreachable) || o.gets.Load() < 3 {
		t.Errorf("%d requests, error %v", o.gets.Load(), err)
	}
	if strings.Contains(err.Error(), "sig=") {
		t.Error("the error contains a signature:", err)
	}
}

func TestSave_MissingFolder(t *testing.T) {
	t.Parallel()
	_, c, path := newOrigin(t)
	for _, want := range []Results{parquet, {Format: "json"}} {
		if _, err := c.Save(t.Context(), "job-1", want, filepath.Join(path, "no", "such", "folder"), nil); !errors.Is(err, os.ErrNotExist) {
			t.Error(want.Format, err)
		}
	}
}

func TestSave_Streamed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		write func(w http.ResponseWriter)
		good  bool
	}{
		{"whole", func(w http.ResponseWriter) { io.WriteString(w, `{"outputs":[]}`) }, true},
		{"cut", func(w http.ResponseWriter) {
			io.WriteString(w, `{"outputs":[`)
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, false},
		{"short", func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, `{"outputs":[`)
		}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if got, want := r.URL.RawQuery, "format=json&include_inputs=true"; got != want {
					t.Errorf("query %q, want %q", got, want)
				}
				test.write(w)
			})
			path := filepath.Join(t.TempDir(), "out.json")
			_, err := c.Save(t.Context(), "job-1", Results{Format: "json", Inputs: true}, path, nil)
			got, readErr := os.ReadFile(path)
			if test.good && (err != nil || string(got) != `{"outputs":[]}`) {
				t.Errorf("%q, error %v", got, err)
			}
			if !test.good && (err == nil || readErr == nil) {
				t.Errorf("an incomplete answer was saved: %q, error %v", got, err)
			}
			if parts := leftovers(t, path); len(parts) > 0 {
				t.Error("left behind:", parts)
			}
		})
	}
}

func TestStream_Stalls(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "{")
		http.NewResponseController(w).Flush()
		<-release
	})
	defer close(release)
	c.cfg.StallTimeout = 20 * time.Millisecond
	_, err := c.Stream(t.Context(), "job-1", Results{Format: "json"}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "no data was received") {
		t.Error(err)
	}
}
