package exchange

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/request"
)

// serve answers a request with a handler, and returns the answer and the log.
func serve(t *testing.T, r *http.Request, handler func(x *Exchange) gin.HandlerFunc) (*httptest.ResponseRecorder, string) {
	t.Helper()
	var log strings.Builder
	x := &Exchange{Logger: slog.New(slog.NewTextHandler(&log, nil)), StallTimeout: time.Minute, MaxBody: 100}
	engine, answer := gin.New(), httptest.NewRecorder()
	engine.Use(func(c *gin.Context) { SetRequestID(c, "the-id") })
	engine.Any("/", handler(x))
	engine.ServeHTTP(answer, r)
	return answer, log.String()
}

func get() *http.Request { return httptest.NewRequest("GET", "/", nil) }

func TestHandle_AnswersOrFails(t *testing.T) {
	t.Parallel()
	answer, log := serve(t, get(), func(x *Exchange) gin.HandlerFunc {
		return x.Handle(func(*gin.Context) (any, error) { return gin.H{"a": "<b>", "n": Decimal(1)}, nil })
	})
	if got := answer.Body.String(); got != `{"a":"<b>","n":1.0}`+"\n" || answer.Code != 200 || answer.Header().Get("Content-Length") != "20" || log != "" {
		t.Errorf("%d %q %v, log %s", answer.Code, got, answer.Header(), log)
	}
	for name, c := range map[string]struct {
		err    error
		status int
		logged string
	}{
		"Client":   {rowmill.Invalid("f", "is wrong"), 400, ""},
		"Service":  {errors.New("a secret reason"), 500, "level=ERROR"},
		"ForNow":   {fmt.Errorf("%w: a secret reason", rowmill.ErrUnavailable), 503, "level=WARN"},
		"WithMore": {request.Errorf(409, "x", "y").WithField("status", "running"), 409, ""},
	} {
		answer, log := serve(t, get(), func(x *Exchange) gin.HandlerFunc {
			return x.Handle(func(*gin.Context) (any, error) { return gin.H{}, c.err })
		})
		body := answer.Body.String()
		if answer.Code != c.status || !strings.Contains(body, `"request_id":"the-id"`) || strings.Contains(body, "secret") {
			t.Errorf("%s: %d %s", name, answer.Code, body)
		}
		if !strings.Contains(log, c.logged) || (log == "") != (c.logged == "") {
			t.Errorf("%s: log %q, want %q", name, log, c.logged)
		}
		if name == "WithMore" && !strings.Contains(body, `"status":"running"`) {
			t.Errorf("%s: %s", name, body)
		}
	}
}

func TestStream_ErrorsBeforeAndAfterTheBeginning(t *testing.T) {
	t.Parallel()
	broken := func(size int) func(x *Exchange) gin.HandlerFunc {
		return func(x *Exchange) gin.HandlerFunc {
			return x.HandleRaw(func(c *gin.Context) error {
				return x.Stream(c, "text/plain", "name.txt", func(w *bufio.Writer) error {
					_, _ = w.WriteString(strings.Repeat("a", size))
					return errors.New("broken")
				})
			})
		}
	}
	if answer, _ := serve(t, get(), broken(streamBuffer)); answer.Code != 500 || answer.Header().Get("Content-Disposition") != "" {
		t.Errorf("%d %v", answer.Code, answer.Header())
	}
	defer func() {
		if reason := recover(); reason != http.ErrAbortHandler { //nolint:errorlint // the value of a panic
			t.Errorf("half an answer ended with %v", reason)
		}
	}()
	serve(t, get(), broken(streamBuffer+1))
}

func TestList_OfNoneOneAndMore(t *testing.T) {
	t.Parallel()
	for n, want := range []string{`{"all":[]}`, `{"all":[0]}`, `{"all":[0,1]}`} {
		answer, _ := serve(t, get(), func(x *Exchange) gin.HandlerFunc {
			return x.HandleRaw(func(c *gin.Context) error {
				return x.StreamList(c, `{"all":`, func(yield func(any) error) error {
					for i := range n {
						if err := yield(i); err != nil {
							return err
						}
					}
					return nil
				})
			})
		})
		if got := strings.ReplaceAll(answer.Body.String(), "\n", ""); got != want {
			t.Errorf("%d elements: %s", n, got)
		}
	}
}

func TestReadObject_Refuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body, encoding string
		status         int
	}{
		"Good":       {`{"a":1}`, "", 200},
		"Identity":   {`{"a":1}`, "identity", 200},
		"Compressed": {`{"a":1}`, "gzip", 415},
		"TooLong":    {`{"a":"` + strings.Repeat("x", 50) + `"}`, "", 413},
		"FarTooLong": {`{"a":"` + strings.Repeat("x", 200) + `"}`, "", 413}, // refused before it is read
		"NoObject":   {`[]`, "", 400},
	} {
		r := httptest.NewRequest("POST", "/", strings.NewReader(c.body))
		r.Header.Set("Content-Encoding", c.encoding)
		answer, _ := serve(t, r, func(x *Exchange) gin.HandlerFunc {
			return x.Handle(func(c *gin.Context) (any, error) {
				_, err := x.ReadObject(c, 50)
				return gin.H{}, err
			})
		})
		if answer.Code != c.status {
			t.Errorf("%s: %d %s", name, answer.Code, answer.Body)
		}
	}
	broken := httptest.NewRequest("POST", "/", io.MultiReader(strings.NewReader(`{"a`), brokenReader{}))
	answer, _ := serve(t, broken, func(x *Exchange) gin.HandlerFunc {
		return x.Handle(func(c *gin.Context) (any, error) {
			_, err := x.ReadObject(c, 50)
			return nil, err
		})
	})
	if answer.Code != 400 || !strings.Contains(answer.Body.String(), "body_unreadable") {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("reset by peer") }
