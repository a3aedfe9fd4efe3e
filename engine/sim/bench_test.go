package sim

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rowmill/rowmill/engine/sim/batching"
	"github.com/rowmill/rowmill/internal/must"
)

// prompt1K is a row of the size of the row-path benchmark: 1 KB in, about
// 0.5 KB (100 tokens) out.
var prompt1K = strings.Repeat("The quick brown fox jumps over the lazy dog. ", 22) + "[[sim:tokens=100]]"

// BenchmarkCompose is the work of the simulator alone, without connections.
func BenchmarkCompose(b *testing.B) {
	for name, fields := range map[string][]any{
		"plain":    {},
		"logprobs": {"logprobs", true, "top_logprobs", 1},
		"schema":   {"response_format", schemaFormat},
	} {
		b.Run(name, func(b *testing.B) {
			answers(b, newSim(b, Config{}), chatPath, []byte(body("plain", prompt1K, fields...)))
		})
	}
	b.Run("embedding", func(b *testing.B) {
		models := testModels()
		models[2].Dimension = 1024
		answers(b, newSim(b, Config{Models: models}), "/v1/embeddings", []byte(`{"model":"embedder","encoding_format":"base64","input":["`+prompt1K+`"]}`))
	})
}

// discard is an http.ResponseWriter that keeps nothing but the status.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(status int)      { d.status = status }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }

// answers has a server answer one request again and again.
func answers(b *testing.B, s *Server, path string, data []byte) {
	b.Helper()
	d := &discard{header: http.Header{}}
	r := httptest.NewRequest(http.MethodPost, path, nil)
	b.ReportAllocs()
	before := cpu(b)
	for b.Loop() {
		r.Body = io.NopCloser(bytes.NewReader(data))
		s.ServeHTTP(d, r)
	}
	b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
	if d.status != http.StatusOK {
		b.Fatalf("status %d", d.status)
	}
}

// BenchmarkServer measures CPU per request over loopback, client included: the
// client writes ready-made bytes and parses only the framing. health is the
// price of HTTP alone; the difference to it is the simulator's. row is 300
// tokens in and 150 out, no two prompts alike, and row-gpu the same on a GPU
// that is fast enough to keep up.
func BenchmarkServer(b *testing.B) {
	post := func(prompt string, fields ...any) []byte {
		data := body("plain", prompt, fields...)
		return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", chatPath, len(data), data)
	}
	row := post(serialMark + strings.Repeat("word some text ", 93) + "[[sim:tokens=150]]")
	requests := []struct {
		name    string
		request []byte
		config  Config
	}{
		{"health", []byte("GET /health HTTP/1.1\r\nHost: x\r\n\r\n"), Config{}},
		{"plain", post(prompt1K), Config{}},
		{"logprobs", post(prompt1K, "logprobs", true, "top_logprobs", 1), Config{}},
		{"plain-5ms", post(prompt1K), Config{Profile: LatencyProfile{TimeToFirstToken: 5 * time.Millisecond}}},
		{"row", row, Config{}},
		{"row-gpu", row, Config{GPU: &batching.Config{Profile: gpu(b).Faster(300)}}},
	}
	for _, r := range requests {
		b.Run(r.name, func(b *testing.B) {
			s := newSim(b, r.config)
			must.Succeed(b, s.Start(context.Background(), "127.0.0.1:0"))
			defer func() { _ = s.Stop(context.Background()) }()
			hammer(b, s.Addr().String(), r.request)
		})
	}
}

// serialMark is replaced by the number of the request.
const serialMark = "0000000000000000"

func hammer(b *testing.B, addr string, request []byte) {
	const parallel = 64 // connections per processor
	var sent atomic.Int64
	mark := bytes.Index(request, []byte(serialMark))
	before := cpu(b)
	b.ResetTimer()
	b.SetParallelism(parallel)
	b.RunParallel(func(pb *testing.PB) {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			b.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		in := bufio.NewReaderSize(conn, 64<<10)
		own := bytes.Clone(request)
		for pb.Next() {
			serial := sent.Add(1)
			if mark >= 0 {
				copy(own[mark:], fmt.Sprintf("%0*d", len(serialMark), serial))
			}
			if err := roundTrip(conn, in, own); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.StopTimer()
	b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(sent.Load()), "cpu-µs/req")
	b.ReportMetric(float64(sent.Load())/b.Elapsed().Seconds(), "req/s")
}

// BenchmarkBatching is the cost of a row of 300 and 150 tokens in the pace
// alone, no two prompts alike, on a GPU that is fast enough to keep up.
func BenchmarkBatching(b *testing.B) {
	pace := newBatching(b, batching.Config{Profile: gpu(b).Faster(2000)})
	defer pace.Close()
	var serial atomic.Int64
	b.ReportAllocs()
	before := cpu(b)
	b.SetParallelism(128)
	b.RunParallel(func(pb *testing.PB) {
		prompt := []byte("user\x00" + serialMark + strings.Repeat("word some text ", 97) + "\x00")
		for pb.Next() {
			copy(prompt[len("user\x00"):], fmt.Sprintf("%0*d", len(serialMark), serial.Add(1)))
			r, err := pace.Start(EngineRequest{Prompt: prompt, PromptTokens: 300, OutputTokens: 150})
			if err != nil {
				b.Error(err)
				return
			}
			if _, err := r.Wait(context.Background(), 150); err != nil {
				b.Error(err)
			}
			r.End()
		}
	})
	b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N), "cpu-µs/row")
	b.ReportMetric(float64(pace.Stats().Steps)/float64(b.N), "steps/row")
}

func roundTrip(conn net.Conn, in *bufio.Reader, request []byte) error {
	if _, err := conn.Write(request); err != nil {
		return err
	}
	length := 0
	for first := true; ; first = false {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if first && !bytes.Contains(line, []byte(" 200 ")) {
			return fmt.Errorf("answer %q", line)
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return err
			}
		}
		if len(line) == 2 {
			_, err := in.Discard(length)
			return err
		}
	}
}

// cpu is the processor time of this process.
func cpu(b *testing.B) time.Duration {
	var usage syscall.Rusage
	must.Succeed(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
