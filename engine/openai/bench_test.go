package openai

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/textfmt"
)

func benchScan(b *testing.B, body []byte) {
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	var src bytesSource
	for b.Loop() {
		src.rest = body
		r := newReplyReader(&src, 1<<20, false)
		must.Succeed(b, r.scanChat())
		if _, _, err := r.buildAnswer(true, false); err != nil {
			b.Fatal(err)
		}
		r.release()
	}
}

// BenchmarkScanReply scans a reply of about 0.65 KB without log probabilities.
func BenchmarkScanReply(b *testing.B) { benchScan(b, chatBody(25, 0)) }

// BenchmarkScanLogprobs scans 73 tokens with log probabilities: about 6.5 KB with an
// empty top_logprobs, about 12 KB with one alternative.
func BenchmarkScanLogprobs(b *testing.B) {
	short := bytes.ReplaceAll(chatBody(73, 1), []byte(`,"bytes":[32,116,104]}]`), []byte(`]`))
	short = regexp.MustCompile(`"top_logprobs":\[[^]]*\]`).ReplaceAll(short, []byte(`"top_logprobs":[]`))
	b.Run("none", func(b *testing.B) { benchScan(b, short) })
	b.Run("one", func(b *testing.B) { benchScan(b, chatBody(73, 1)) })
}

func BenchmarkEscape(b *testing.B) {
	text := []byte(strings.Repeat("A line of an ordinary prompt, with \"quotes\" here and there.\n", 17))
	b.ReportAllocs()
	b.SetBytes(int64(len(text)))
	var dst []byte
	for b.Loop() {
		dst = textfmt.AppendString(dst[:0], text)
	}
}

func BenchmarkEmbedding(b *testing.B) {
	body := []byte(`{"object":"list","data":[{"object":"embedding","index":0,"embedding":"` +
		strings.Repeat("AACAPwAAAEAAAEBA", 1024*4*4/3/16) + `"}],"usage":{"prompt_tokens":5,"total_tokens":5}}`)
	b.ReportAllocs()
	var src bytesSource
	out := make([]engine.Reply, 1)
	for b.Loop() {
		src.rest = body
		r := newReplyReader(&src, 1<<20, false)
		must.Succeed(b, r.scanEmbeddings(out, 0))
		r.release()
	}
}

// BenchmarkRoundTrip runs rows with a 1 KB prompt and a 0.65 KB reply against a minimal
// server in another process. It reports the CPU time of this process per row, besides
// the wall time.
func BenchmarkRoundTrip(b *testing.B) {
	for _, rows := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("inflight=%d", rows), func(b *testing.B) { benchRoundTrip(b, rows) })
	}
}

func benchRoundTrip(b *testing.B, inflight int) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestStubServer$")
	cmd.Env = append(os.Environ(), "ROWMILL_STUB_SERVER=1")
	in := must.Get(cmd.StdinPipe())(b)
	out := must.Get(cmd.StdoutPipe())(b)
	must.Succeed(b, cmd.Start())
	defer func() {
		_ = in.Close() // the stub exits at the end of its input
		_ = cmd.Wait()
	}()
	address := must.Get(bufio.NewReader(out).ReadString('\n'))(b)
	e := must.Get(New(Config{BaseURL: "http://" + strings.TrimSpace(address)}))(b)
	defer e.Close()
	e.storeProbe(engine.ServerInfo{Kind: kindVLLM, Models: []engine.ServedModel{{Name: "m"}}}, probeFacts{})
	c := must.Get(e.Prepare(engine.JobParams{
		Model: generator, System: "Be brief.", Logprobs: true, MaxTokens: 200, Sampling: map[string]any{"temperature": 0.7},
	}))(b)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	row := engine.Row{Text: []byte(strings.Repeat("A line of an ordinary prompt, with some text in it.\n", 20))}

	b.ReportAllocs()
	b.ResetTimer()
	before := cpuTime()
	var wg sync.WaitGroup
	for i := range inflight {
		wg.Go(func() {
			for range (b.N + i) / inflight {
				if _, err := c.Generate(ctx, row); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op")
}

// cpuTime returns the CPU time of this process, in nanoseconds.
func cpuTime() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}

// TestStubServer is not a test: it runs the server of BenchmarkRoundTrip in its own
// process.
func TestStubServer(t *testing.T) {
	if os.Getenv("ROWMILL_STUB_SERVER") == "" {
		return
	}
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	fmt.Println(listener.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	body := chatBody(25, 0)
	reply := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s", len(body), body)
	for {
		c, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = c.Close() }()
			in := bufio.NewReaderSize(c, 16<<10)
			for {
				length := 0
				for {
					line, err := in.ReadSlice('\n')
					if err != nil {
						return
					}
					if len(line) <= 2 {
						break
					}
					if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
						length, _ = strconv.Atoi(string(bytes.TrimSpace(value)))
					}
				}
				if _, err := in.Discard(length); err != nil {
					return
				}
				if _, err := c.Write(reply); err != nil {
					return
				}
			}
		}()
	}
}
