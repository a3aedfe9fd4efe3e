package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const model = "llama-3.1-8b"

// rowText is the input of row i, answerText the witness's answer. They have commas,
// quotes and line breaks, which bad file writers get wrong.
func rowText(i int) string {
	return fmt.Sprintf("row-%d-: %s, \"quoted\"\nsecond line %s", i, strings.Repeat("words ", i%7), strings.Repeat("and more ", 5))
}

// rowTexts returns the inputs of the first rows.
func rowTexts(rows int) []string {
	texts := make([]string, rows)
	for i := range texts {
		texts[i] = rowText(i)
	}
	return texts
}

func answerText(i int) string {
	return fmt.Sprintf("answer-%d-: %s", i, strings.Repeat("text of an answer ", 3+i%11))
}

// witness is an inference server that counts requests.
type witness struct {
	url   string
	delay time.Duration // of each answer
	asked []atomic.Int32
	calls atomic.Int64
	hold  atomic.Int64 // if not 0, requests after so many wait until hold changes

	inFlight, peak atomic.Int64
}

// newWitness starts a witness for rows rows.
func newWitness(t *testing.T, rows int, delay time.Duration) *witness {
	t.Helper()
	w := &witness{asked: make([]atomic.Int32, rows), delay: delay}
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	w.url = server.URL
	return w
}

var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func (w *witness) ServeHTTP(out http.ResponseWriter, request *http.Request) {
	switch request.URL.Path {
	case "/v1/models":
		fmt.Fprintf(out, `{"object":"list","data":[{"id":"%s","object":"model","created":1700000000,"owned_by":"witness","max_model_len":32768}]}`, model)
	case "/health":
	case "/v1/chat/completions":
		body := bodies.Get().(*bytes.Buffer)
		defer bodies.Put(body)
		body.Reset()
		if _, err := io.Copy(body, request.Body); err != nil {
			return // the node was killed during the request
		}
		w.chat(out, body.Bytes())
	default:
		http.NotFound(out, request)
	}
}

func (w *witness) chat(out http.ResponseWriter, body []byte) {
	row, ok := rowOf(body)
	if !ok || row >= len(w.asked) {
		http.Error(out, `{"error":{"message":"no row number in the prompt","type":"invalid_request_error"}}`, http.StatusBadRequest)
		return
	}
	number, held := w.calls.Add(1), w.hold.Load()
	w.asked[row].Add(1)
	for held > 0 && number > held && w.hold.Load() == held {
		time.Sleep(time.Millisecond)
	}
	for now := w.inFlight.Add(1); ; {
		if peak := w.peak.Load(); now <= peak || w.peak.CompareAndSwap(peak, now) {
			break
		}
	}
	time.Sleep(w.delay)
	w.inFlight.Add(-1)
	out.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(out, `{"id":"w","object":"chat.completion","created":1700000000,"model":"%s","choices":[{"index":0,`+
		`"message":{"role":"assistant","content":%q},"logprobs":{"content":[{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[]}]},"finish_reason":"stop"}],`+
		`"usage":{"prompt_tokens":20,"completion_tokens":10,"total_tokens":30}}`, model, answerText(row))
}

// rowOf finds the row's number in a request body.
func rowOf(body []byte) (int, bool) {
	_, rest, found := bytes.Cut(body, []byte("row-"))
	number, _, found2 := bytes.Cut(rest, []byte("-"))
	row, err := strconv.Atoi(string(number))
	return row, found && found2 && err == nil && row >= 0
}

// seen reports for each row whether a request has asked for it.
func (w *witness) seen() []bool {
	rows := make([]bool, len(w.asked))
	for i := range w.asked {
		rows[i] = w.asked[i].Load() > 0
	}
	return rows
}

// repeats counts the requests beyond the first for each row.
func (w *witness) repeats() int {
	repeats := 0
	for i := range w.asked {
		if n := int(w.asked[i].Load()); n > 1 {
			repeats += n - 1
		}
	}
	return repeats
}

// forget resets the counts.
func (w *witness) forget() {
	for i := range w.asked {
		w.asked[i].Store(0)
	}
	w.calls.Store(0)
	w.peak.Store(0)
}
