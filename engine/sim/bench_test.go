package sim

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// prompt1K is a row of the size of the row-path benchmark: 1 KB in, about
// 0.5 KB (100 tokens) out.
var prompt1K = strings.Repeat("The quick brown fox jumps over the lazy dog. ", 22) + "[[sim:tokens=100]]"

// BenchmarkCompose is the work of the simulator alone, without HTTP.
func BenchmarkCompose(b *testing.B) {
	for name, fields := range map[string][]any{
		"plain":    {},
		"logprobs": {"logprobs", true, "top_logprobs", 1},
		"schema":   {"response_format", schemaFormat},
	} {
		b.Run(name, func(b *testing.B) {
			s := newSim(b, Config{})
			data := []byte(body("plain", prompt1K, fields...))
			x := &discard{data: data}
			b.ReportAllocs()
			before := cpu(b)
			for b.Loop() {
				s.chat(x)
			}
			b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
			if x.status != 200 {
				b.Fatalf("status %d", x.status)
			}
		})
	}
	b.Run("embedding", func(b *testing.B) {
		models := testModels()
		models[2].Dimension = 1024
		s := newSim(b, Config{Models: models})
		x := &discard{data: []byte(`{"model":"embedder","encoding_format":"base64","input":["` + prompt1K + `"]}`)}
		b.ReportAllocs()
		for b.Loop() {
			s.embed(x)
		}
		if x.status != 200 {
			b.Fatalf("status %d", x.status)
		}
	})
}

// discard is an exchange that keeps nothing.
type discard struct {
	data   []byte
	out    []byte
	status int
}

func (x *discard) method() []byte           { return []byte("POST") }
func (x *discard) path() []byte             { return nil }
func (x *discard) body() []byte             { return x.data }
func (x *discard) context() context.Context { return context.Background() }
func (x *discard) buffer() []byte           { return x.out[:0] }
func (x *discard) answer(status int, _ string, _ time.Duration, b []byte) {
	x.status, x.out = status, b
}
func (x *discard) stream(_ string, body io.ReadCloser) { _ = body.Close() }
func (x *discard) reset()                              {}

// BenchmarkServer measures CPU per request over loopback, client included: the
// client writes ready-made bytes and parses only the framing. health is the
// price of HTTP alone; the difference to it is the simulator's.
func BenchmarkServer(b *testing.B) {
	post := func(fields ...any) []byte {
		data := body("plain", prompt1K, fields...)
		return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", chatPath, len(data), data)
	}
	requests := []struct {
		name    string
		request []byte
		profile Profile
	}{
		{"health", []byte("GET /health HTTP/1.1\r\nHost: x\r\n\r\n"), Instant()},
		{"plain", post(), Instant()},
		{"logprobs", post("logprobs", true, "top_logprobs", 1), Instant()},
		{"plain-5ms", post(), Profile{TimeToFirstToken: 5 * time.Millisecond}},
	}
	for _, r := range requests {
		b.Run("start/"+r.name, func(b *testing.B) {
			s := newSim(b, Config{Profile: r.profile})
			if err := s.Start(context.Background(), "127.0.0.1:0"); err != nil {
				b.Fatal(err)
			}
			defer func() { _ = s.Stop(context.Background()) }()
			hammer(b, s.Addr().String(), r.request)
		})
		b.Run("handler/"+r.name, func(b *testing.B) {
			server := httptest.NewServer(newSim(b, Config{Profile: r.profile}).Handler())
			defer server.Close()
			hammer(b, server.Listener.Addr().String(), r.request)
		})
	}
}

func hammer(b *testing.B, addr string, request []byte) {
	const parallel = 64 // connections per processor
	var sent atomic.Int64
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
		for pb.Next() {
			if err := roundTrip(conn, in, request); err != nil {
				b.Error(err)
				return
			}
			sent.Add(1)
		}
	})
	b.StopTimer()
	b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(sent.Load()), "cpu-µs/req")
	b.ReportMetric(float64(sent.Load())/b.Elapsed().Seconds(), "req/s")
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
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
