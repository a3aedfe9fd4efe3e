package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// maxRequest limits the head and body of a request: the largest row is 8 MiB, and a
// group of rows to embed is far smaller.
const maxRequest = 64 << 20

var errTooLarge = errors.New("request is larger than 64 MiB")

// serve answers the requests on a connection in turn until the connection ends.
func (s *server) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReaderSize(conn, 32<<10)
	var body, out []byte
	for {
		target, length, err := readHead(in)
		if err != nil {
			return
		}
		if cap(body) < length {
			body = make([]byte, length)
		}
		body = body[:length]
		if _, err := io.ReadFull(in, body); err != nil {
			return
		}
		out = s.answer(out[:0], target, body)
		if _, err := conn.Write(out); err != nil {
			return
		}
	}
}

// readHead reads a request line and headers and returns the path and the
// body's length.
func readHead(in *bufio.Reader) (target string, length int, err error) {
	for first := true; ; first = false {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return "", 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		switch {
		case first:
			target = route(line)
		case len(line) == 0:
			if length > maxRequest {
				return "", 0, errTooLarge
			}
			return target, length, nil
		case len(line) > 15 && bytes.EqualFold(line[:15], []byte("content-length:")):
			length, err = strconv.Atoi(string(bytes.TrimSpace(line[15:])))
			if err != nil {
				return "", 0, fmt.Errorf("content-length: %w", err)
			}
		}
	}
}

// route returns the path of a request line, without an allocation for frequent paths.
func route(line []byte) string {
	_, rest, _ := bytes.Cut(line, []byte(" "))
	path, _, _ := bytes.Cut(rest, []byte(" "))
	switch {
	case bytes.Equal(path, []byte("/v1/chat/completions")):
		return "/v1/chat/completions"
	case bytes.Equal(path, []byte("/v1/embeddings")):
		return "/v1/embeddings"
	}
	return string(path)
}

// answer appends the whole response to out.
func (s *server) answer(out []byte, target string, body []byte) []byte {
	switch target {
	case "/v1/chat/completions":
		s.wait()
		if bytes.Contains(body, []byte(`"logprobs":true`)) || bytes.Contains(body, []byte(`"logprobs": true`)) {
			return append(out, s.scored...)
		}
		return append(out, s.plain...)
	case "/v1/embeddings":
		s.wait()
		return append(out, s.embeddings(body)...)
	case "/v1/models":
		return append(out, response("application/json", s.models)...)
	case "/version":
		return append(out, response("application/json", []byte(`{"version":"0.0.0-null"}`))...)
	case "/health":
		return append(out, response("text/plain", nil)...)
	case "/null/first":
		return append(out, response("text/plain", strconv.AppendInt(nil, s.first.Swap(0), 10))...)
	case "/metrics":
		return append(out, response("text/plain; version=0.0.4", s.metrics())...)
	}
	const unknown = `{"error":{"message":"there is no such route here","type":"not_found_error","code":404}}`
	return fmt.Appendf(out, "HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(unknown), unknown)
}

func (s *server) wait() {
	s.requests.Add(1)
	if s.first.Load() == 0 {
		s.first.CompareAndSwap(0, time.Now().UnixNano())
	}
	if s.slots != nil {
		s.waiting.Add(1)
		s.slots <- struct{}{}
		s.waiting.Add(-1)
		defer func() { <-s.slots }()
	}
	s.running.Add(1)
	if s.delay > 0 {
		time.Sleep(s.delay)
	}
	s.running.Add(-1)
}

// metrics writes the gauges that clients read, under vLLM's names.
func (s *server) metrics() []byte {
	return fmt.Appendf(nil, "vllm:num_requests_running %d\nvllm:num_requests_waiting %d\nvllm:kv_cache_usage_perc 0\nvllm:num_preemptions_total 0\n", s.running.Load(), s.waiting.Load())
}

// embeddings writes one vector per text.
func (s *server) embeddings(body []byte) []byte {
	forms := &s.floats
	if bytes.Contains(body, []byte(`"base64"`)) {
		forms = &s.base64
	}
	n := countTexts(body)
	data := make([]byte, 0, n*(len(forms[0])+64)+256)
	data = append(data, `{"object":"list","model":"null","data":[`...)
	for i := range n {
		if i > 0 {
			data = append(data, ',')
		}
		data = append(data, `{"object":"embedding","index":`...)
		data = strconv.AppendInt(data, int64(i), 10)
		data = append(data, `,"embedding":`...)
		data = append(data, forms[s.vector.Add(1)%vectors]...)
		data = append(data, '}')
	}
	data = fmt.Appendf(data, `],"usage":{"prompt_tokens":%d,"total_tokens":%d}}`, 25*n, 25*n)
	return response("application/json", data)
}

// countTexts returns how many strings the request's "input" holds.
func countTexts(body []byte) int {
	_, rest, found := bytes.Cut(body, []byte(`"input":`))
	if !found {
		return 0
	}
	rest = bytes.TrimLeft(rest, " \n\t")
	if len(rest) == 0 || rest[0] != '[' {
		return 1
	}
	n, inside := 0, false
	for i := 1; i < len(rest); i++ {
		switch c := rest[i]; {
		case inside && c == '\\':
			i++
		case c == '"':
			if inside {
				n++
			}
			inside = !inside
		case !inside && c == ']':
			return n
		}
	}
	return n
}
