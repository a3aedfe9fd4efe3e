package http

import (
	"bufio"
	"fmt"
	"net"
	nethttp "net/http"
	"strings"
	"sync"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
)

// upload sends a submission like a client that reads no answer before it has sent its
// whole body. It returns the status of the answer.
func (w *world) upload(body string, headers ...string) (int, error) {
	address := strings.TrimPrefix(w.http.URL, "http://")
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return 0, err
	}
	defer connection.Close()
	head := fmt.Sprintf("POST /v1/batch-inference HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n%s\r\n",
		address, len(body), strings.Join(headers, ""))
	for _, text := range []string{head, body} {
		if _, err := connection.Write([]byte(text)); err != nil {
			return 0, fmt.Errorf("send: %w", err)
		}
	}
	reader := bufio.NewReader(connection)
	for {
		answer, err := nethttp.ReadResponse(reader, nil)
		if err != nil {
			return 0, fmt.Errorf("receive: %w", err)
		}
		answer.Body.Close()
		if answer.StatusCode != nethttp.StatusContinue {
			return answer.StatusCode, nil
		}
	}
}

func TestSubmit_RefusedUploadGetsItsAnswer(t *testing.T) {
	t.Parallel()
	const times = 20
	key := "Authorization: Key " + adminKey + "\r\n"
	rows := `{"inputs":[` + strings.Repeat(`"a row of a few words",`, 300_000) + `"the last"]}`
	for name, c := range map[string]struct {
		body   string
		key    string
		status int
	}{
		"NoKey":       {rows, "", 401},
		"NoJSON":      {"{]" + rows, key, 400},
		"TooLarge":    {rows, key, 413},
		"StorageAway": {rows, key, 503},
	} {
		w := setup(t, func(config *Config) {
			if config.MaxInlineBytes = 1000; c.status == 413 {
				config.MaxBodyBytes = 1 << 20
			}
		})
		if c.status == 503 {
			w.bucket.fail = errAway
		}
		var uploads sync.WaitGroup
		for i := range times {
			expect := []string{"", "Expect: 100-continue\r\n"}[i%2]
			uploads.Go(func() {
				if status, err := w.upload(c.body, c.key, expect); status != c.status || err != nil {
					t.Errorf("%s %s: status %d, %v; want %d", name, expect, status, err, c.status)
				}
			})
		}
		uploads.Wait()
	}
}

func TestSubmit_RefusedUploadIsReadUpToALimit(t *testing.T) {
	t.Parallel()
	const most = 128 << 20 // the bytes that the server reads, and the bytes in buffers
	w := setup(t)
	address := strings.TrimPrefix(w.http.URL, "http://")
	connection, err := net.Dial("tcp", address)
	must.Succeed(t, err)
	defer connection.Close()
	fmt.Fprintf(connection, "POST /v1/batch-inference HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", address, 4*most)
	sent, chunk := 0, make([]byte, 1<<20)
	for err == nil && sent < most {
		var n int
		n, err = connection.Write(chunk)
		sent += n
	}
	if err == nil {
		t.Errorf("%d bytes of a refused body were taken", sent)
	}
}
