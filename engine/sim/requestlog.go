package sim

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"
)

// The buffer of the request log is written requestLogDelay after its first line, or
// when it has requestLogBytes bytes. A simulator that is killed loses its buffer; a
// simulator that is stopped loses nothing.
const (
	requestLogDelay = 50 * time.Millisecond
	requestLogBytes = 64 << 10
)

// A requestLog logs every row computed, as lines of JSON:
//
//	{"time":"2026-11-20T10:00:00.123456789Z","endpoint":"chat","model":"m",
//	 "prompt":"9f86d081884c7d65","seed":7,"prompt_tokens":12,
//	 "completion_tokens":60,"status":200,"cancelled":false,"fault":"",
//	 "cached_tokens":0,"preempted":0,"traceparent":""}
//
// prompt is the first 16 hexadecimal digits of the SHA-256 of the last user message or
// of the text to embed, never the text itself; seed is null where the request had none;
// status is 0 where nothing was answered; cancelled is true if the client closed the
// connection; completion_tokens is then the number of tokens that were generated
// before; fault is the kind injected; cached_tokens is how much of the prompt the
// prefix cache held, and preempted how often the request was computed again;
// traceparent is that header of the request. Lines come in the order in which requests
// end.
type requestLog struct {
	log *slog.Logger

	mu      sync.Mutex
	out     io.Writer
	buffer  []byte
	pending bool // a timer will write the buffer
	err     error
}

// newRequestLog returns nil for a nil writer.
func newRequestLog(out io.Writer, log *slog.Logger) *requestLog {
	if out == nil {
		return nil
	}
	return &requestLog{out: out, log: log}
}

// logRecord is one line of the request log.
type logRecord struct {
	Time             time.Time `json:"time"`
	Endpoint         string    `json:"endpoint"`
	Model            string    `json:"model"`
	Prompt           string    `json:"prompt"`
	Seed             *int64    `json:"seed"`
	PromptTokens     int       `json:"prompt_tokens"`
	CompletionTokens int       `json:"completion_tokens"`
	Status           int       `json:"status"`
	Cancelled        bool      `json:"cancelled"`
	Fault            string    `json:"fault"`
	CachedTokens     int       `json:"cached_tokens"`
	Preempted        int       `json:"preempted"`
	Traceparent      string    `json:"traceparent"`
}

// newLogRecord returns the line of a call, without the fields that only chats or only
// embeddings have.
func (c *activeRequest) newLogRecord(endpoint, model string, status int, cancelled bool) logRecord {
	return logRecord{
		Time: c.began.UTC(), Endpoint: endpoint, Model: model, Status: status, Cancelled: cancelled, Fault: faultWords[c.injected.fault],
		CachedTokens: c.use.CachedTokens, Preempted: c.use.Preempted, Traceparent: c.r.Header.Get("traceparent"),
	}
}

// write adds a line to the buffer. text is the text whose hash is logged as prompt.
func (w *requestLog) write(r logRecord, text []byte) {
	sum := sha256.Sum256(text)
	r.Prompt = hex.EncodeToString(sum[:8])
	line, err := json.Marshal(r)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.fail(err)
		return
	}
	w.buffer = append(append(w.buffer, line...), '\n')
	switch {
	case len(w.buffer) >= requestLogBytes:
		w.writeBuffer()
	case !w.pending:
		w.pending = true
		time.AfterFunc(requestLogDelay, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.pending = false
			w.writeBuffer()
		})
	}
}

// writeBuffer writes the buffered lines to the log. The caller has locked w.mu. After
// an error it writes no more lines, because readers would not notice the missing lines.
func (w *requestLog) writeBuffer() {
	if len(w.buffer) == 0 {
		return
	}
	if w.err == nil {
		if _, err := w.out.Write(w.buffer); err != nil {
			w.fail(err)
		}
	}
	w.buffer = w.buffer[:0]
}

// fail records an error. After that no more lines are written. The caller has locked
// w.mu.
func (w *requestLog) fail(err error) {
	w.err = fmt.Errorf("write request log: %w", err)
	w.log.Error("writing the request log failed: no more lines are written to the log", slog.Any("err", err))
}

// flush writes the buffer out and returns the first error of all writes.
func (w *requestLog) flush() error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writeBuffer()
	return w.err
}
