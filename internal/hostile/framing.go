package hostile

import (
	"bytes"
	"compress/gzip"
	"net"
	"slices"
	"strconv"
	"strings"
)

// badFramingKinds returns the kinds with bad HTTP. They answer requests for any path.
func badFramingKinds() []AnswerKind {
	kind := func(name string, outcome Outcome, write func(w *answerWriter)) AnswerKind {
		return AnswerKind{Name: name, Outcome: outcome, write: write}
	}
	bulky := func(name string, write func(w *answerWriter)) AnswerKind {
		return AnswerKind{Name: name, Bulky: true, write: write}
	}
	waits := func(name string, write func(w *answerWriter)) AnswerKind {
		return AnswerKind{Name: name, Waits: true, write: func(w *answerWriter) { write(w); w.wait() }}
	}
	refusal := func(name string, code int, headers ...string) AnswerKind {
		return kind(name, Breaks, func(w *answerWriter) {
			w.writeStatus(code)
			for i := 0; i < len(headers); i += 2 {
				w.writeHeader(headers[i], headers[i+1])
			}
			w.writeText("Content-Length: 0\r\n\r\n")
		})
	}
	return []AnswerKind{
		kind("nothing", Breaks, func(*answerWriter) {}),
		kind("reset", Breaks, func(w *answerWriter) {
			if tcp, ok := w.conn.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0) // if this fails, the connection closes normally
			}
		}),
		kind("no HTTP", Breaks, func(w *answerWriter) { w.writeText("220 mail.invalid ESMTP\r\n") }),
		kind("binary", Breaks, func(w *answerWriter) { w.writeText("\x16\x03\x01\x00\xff\x01\x00\x00\xfb\x03\x03\xfe\xff\x00") }),
		kind("status beyond numbers", Breaks, func(w *answerWriter) { w.writeText("HTTP/1.1 99999999999999999999 OK\r\n\r\n") }),
		kind("negative length", Breaks, func(w *answerWriter) {
			w.writeStatus(200)
			w.writeText("Content-Length: -5\r\nContent-Type: ", w.Type, "\r\n\r\n", string(w.Good[:len(w.Good)/2]))
		}),
		kind("length beyond numbers", Breaks, func(w *answerWriter) {
			w.writeStatus(200)
			w.writeText("Content-Length: 99999999999999999999\r\n\r\n", string(w.Good[:len(w.Good)/2]))
		}),
		kind("longer than said", Breaks, func(w *answerWriter) { w.writeHead(len(w.Good) / 2); w.writeText(string(w.Good)) }),
		kind("shorter than said", Breaks, func(w *answerWriter) { w.writeHead(len(w.Good) + 100); w.writeText(string(w.Good)) }),
		kind("half of it", Breaks, func(w *answerWriter) { w.writeHead(len(w.Good)); w.writeText(string(w.Good[:len(w.Good)/2])) }),
		kind("half by close", Breaks, func(w *answerWriter) { w.writeHead(-1); w.writeText(string(w.Good[:len(w.Good)/3])) }),
		kind("empty", Breaks, func(w *answerWriter) { w.writeHead(0) }),
		kind("another protocol", Breaks, func(w *answerWriter) {
			w.writeText("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX-Simulated: true\r\n\r\n")
		}),
		kind("a few informational", Keeps, func(w *answerWriter) {
			w.writeText(strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", 3))
			w.writeBody(string(w.Good))
		}),
		bulky("endless informational", func(w *answerWriter) { w.writeEndless("HTTP/1.1 103 Early Hints\r\nX-Simulated: true\r\n\r\n") }),
		bulky("endless headers", func(w *answerWriter) { w.writeStatus(200); w.writeEndless("X-Filler: more of the same\r\n") }),
		bulky("endless header line", func(w *answerWriter) { w.writeStatus(200); w.writeText("X-Filler: "); w.writeEndless("a") }),
		bulky("endless status line", func(w *answerWriter) { w.writeText("HTTP/1.1 200 "); w.writeEndless("OK ") }),
		bulky("endless trailers", func(w *answerWriter) {
			w.startChunked()
			w.writeChunk(string(w.Good))
			w.writeText("0\r\n")
			w.writeEndless("X-Filler: more of the same\r\n")
		}),
		bulky("endless chunk head", func(w *answerWriter) { w.startChunked(); w.writeEndless("0") }),
		bulky("endless chunk extensions", func(w *answerWriter) {
			w.startChunked()
			w.writeEndless("1;" + strings.Repeat("x", 2000) + "\r\n \r\n")
		}),
		kind("chunks of one byte", Keeps, func(w *answerWriter) {
			w.startChunked()
			for i := range w.Good {
				w.writeChunk(string(w.Good[i : i+1]))
				if i%64 == 0 { // 64 chunks per packet: one packet for each byte would take seconds
					w.flush()
				}
			}
			w.writeText("0\r\n\r\n")
		}),
		kind("malformed chunk", Breaks, func(w *answerWriter) { w.startChunked(); w.writeText("zz\r\n", string(w.Good), "\r\n0\r\n\r\n") }),
		kind("chunk without end", Breaks, func(w *answerWriter) {
			w.startChunked()
			w.writeText(strconv.FormatInt(int64(len(w.Good)/2), 16), "\r\n", string(w.Good))
		}),
		kind("compressed", Breaks, func(w *answerWriter) { w.writeCompressed(w.Good) }),
		kind("compressed bomb", Breaks, func(w *answerWriter) {
			w.writeCompressed(slices.Repeat([][]byte{bytes.Repeat([]byte(" "), 64<<10)}, 1<<6)...)
		}),
		refusal("redirect elsewhere", 307, "Location", "http://169.254.169.254/latest/meta-data/"),
		refusal("redirect to a file", 302, "Location", "file:///etc/hostname"),
		refusal("redirect to itself", 308, "Location", "/v1/chat/completions"),
		refusal("come back in a century", 503, "Retry-After", "3153600000"),
		refusal("come back never", 429, "Retry-After", "Inf"),
		refusal("come back yesterday", 429, "Retry-After", "-1e309"),
		refusal("no such status", 999),
		kind("terminal escapes", Breaks, func(w *answerWriter) {
			text := `{"error":{"message":"\u001b[2J\u001b]0;owned\u0007 no \u202e\u0000","type":"\u001b[31m"}}`
			w.writeStatus(418)
			w.writeText("Content-Length: ", strconv.Itoa(len(text)), "\r\n\r\n", text)
		}),
		kind("deep error", Breaks, func(w *answerWriter) {
			text := strings.Repeat(`{"error":`, 7000)
			w.writeStatus(500)
			w.writeText("Content-Length: ", strconv.Itoa(len(text)), "\r\n\r\n", text)
		}),
		bulky("endless error", func(w *answerWriter) {
			w.writeStatus(500)
			w.writeText("\r\n", `{"error":{"message":"`)
			w.writeEndless("no ")
		}),
		waits("silence", func(*answerWriter) {}),
		waits("silence in the header", func(w *answerWriter) { w.writeStatus(200) }),
		waits("silence in the body", func(w *answerWriter) { w.writeHead(len(w.Good)); w.writeText(string(w.Good[:len(w.Good)/2])) }),
	}
}

// writeCompressed sends a gzip body, although the client did not ask for compression.
func (w *answerWriter) writeCompressed(texts ...[]byte) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	for _, text := range texts {
		_, _ = z.Write(text) // writes to a buffer do not fail
	}
	_ = z.Close()
	w.writeStatus(200)
	w.writeHeader("Content-Type", w.Type)
	w.writeHeader("Content-Encoding", "gzip")
	w.writeHeader("Content-Length", strconv.Itoa(packed.Len()))
	w.writeText("\r\n", packed.String())
}
