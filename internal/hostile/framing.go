package hostile

import (
	"bytes"
	"compress/gzip"
	"net"
	"slices"
	"strconv"
	"strings"
)

// framings returns the kinds with bad HTTP. They answer requests for any path.
func framings() []Kind {
	kind := func(name string, outcome Outcome, write func(w *wire)) Kind {
		return Kind{Name: name, Outcome: outcome, write: write}
	}
	bulky := func(name string, write func(w *wire)) Kind {
		return Kind{Name: name, Bulky: true, write: write}
	}
	waits := func(name string, write func(w *wire)) Kind {
		return Kind{Name: name, Waits: true, write: func(w *wire) { write(w); w.wait() }}
	}
	refusal := func(name string, code int, headers ...string) Kind {
		return kind(name, Breaks, func(w *wire) {
			w.status(code)
			for i := 0; i < len(headers); i += 2 {
				w.header(headers[i], headers[i+1])
			}
			w.text("Content-Length: 0\r\n\r\n")
		})
	}
	return []Kind{
		kind("nothing", Breaks, func(*wire) {}),
		kind("reset", Breaks, func(w *wire) {
			if tcp, ok := w.conn.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0) // if this fails, the connection closes normally
			}
		}),
		kind("no HTTP", Breaks, func(w *wire) { w.text("220 mail.invalid ESMTP\r\n") }),
		kind("binary", Breaks, func(w *wire) { w.text("\x16\x03\x01\x00\xff\x01\x00\x00\xfb\x03\x03\xfe\xff\x00") }),
		kind("status beyond numbers", Breaks, func(w *wire) { w.text("HTTP/1.1 99999999999999999999 OK\r\n\r\n") }),
		kind("negative length", Breaks, func(w *wire) {
			w.status(200)
			w.text("Content-Length: -5\r\nContent-Type: ", w.Type, "\r\n\r\n", string(w.Good[:len(w.Good)/2]))
		}),
		kind("length beyond numbers", Breaks, func(w *wire) {
			w.status(200)
			w.text("Content-Length: 99999999999999999999\r\n\r\n", string(w.Good[:len(w.Good)/2]))
		}),
		kind("longer than said", Breaks, func(w *wire) { w.head(len(w.Good) / 2); w.text(string(w.Good)) }),
		kind("shorter than said", Breaks, func(w *wire) { w.head(len(w.Good) + 100); w.text(string(w.Good)) }),
		kind("half of it", Breaks, func(w *wire) { w.head(len(w.Good)); w.text(string(w.Good[:len(w.Good)/2])) }),
		kind("half by close", Breaks, func(w *wire) { w.head(-1); w.text(string(w.Good[:len(w.Good)/3])) }),
		kind("empty", Breaks, func(w *wire) { w.head(0) }),
		kind("another protocol", Breaks, func(w *wire) {
			w.text("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX-Simulated: true\r\n\r\n")
		}),
		kind("a few informational", Keeps, func(w *wire) {
			w.text(strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", 3))
			w.body(string(w.Good))
		}),
		bulky("endless informational", func(w *wire) { w.endless("HTTP/1.1 103 Early Hints\r\nX-Simulated: true\r\n\r\n") }),
		bulky("endless headers", func(w *wire) { w.status(200); w.endless("X-Filler: more of the same\r\n") }),
		bulky("endless header line", func(w *wire) { w.status(200); w.text("X-Filler: "); w.endless("a") }),
		bulky("endless status line", func(w *wire) { w.text("HTTP/1.1 200 "); w.endless("OK ") }),
		bulky("endless trailers", func(w *wire) {
			w.chunked()
			w.chunk(string(w.Good))
			w.text("0\r\n")
			w.endless("X-Filler: more of the same\r\n")
		}),
		bulky("endless chunk head", func(w *wire) { w.chunked(); w.endless("0") }),
		bulky("endless chunk extensions", func(w *wire) {
			w.chunked()
			w.endless("1;" + strings.Repeat("x", 2000) + "\r\n \r\n")
		}),
		kind("chunks of one byte", Keeps, func(w *wire) {
			w.chunked()
			for i := range w.Good {
				w.chunk(string(w.Good[i : i+1]))
				if i%64 == 0 { // 64 chunks per packet: one packet for each byte would take seconds
					w.flush()
				}
			}
			w.text("0\r\n\r\n")
		}),
		kind("malformed chunk", Breaks, func(w *wire) { w.chunked(); w.text("zz\r\n", string(w.Good), "\r\n0\r\n\r\n") }),
		kind("chunk without end", Breaks, func(w *wire) {
			w.chunked()
			w.text(strconv.FormatInt(int64(len(w.Good)/2), 16), "\r\n", string(w.Good))
		}),
		kind("compressed", Breaks, func(w *wire) { w.compressed(w.Good) }),
		kind("compressed bomb", Breaks, func(w *wire) { w.compressed(slices.Repeat([][]byte{bytes.Repeat([]byte(" "), 64<<10)}, 1<<6)...) }),
		refusal("redirect elsewhere", 307, "Location", "http://169.254.169.254/latest/meta-data/"),
		refusal("redirect to a file", 302, "Location", "file:///etc/hostname"),
		refusal("redirect to itself", 308, "Location", "/v1/chat/completions"),
		refusal("come back in a century", 503, "Retry-After", "3153600000"),
		refusal("come back never", 429, "Retry-After", "Inf"),
		refusal("come back yesterday", 429, "Retry-After", "-1e309"),
		refusal("no such status", 999),
		kind("terminal escapes", Breaks, func(w *wire) {
			text := `{"error":{"message":"\u001b[2J\u001b]0;owned\u0007 no \u202e\u0000","type":"\u001b[31m"}}`
			w.status(418)
			w.text("Content-Length: ", strconv.Itoa(len(text)), "\r\n\r\n", text)
		}),
		kind("deep error", Breaks, func(w *wire) {
			text := strings.Repeat(`{"error":`, 7000)
			w.status(500)
			w.text("Content-Length: ", strconv.Itoa(len(text)), "\r\n\r\n", text)
		}),
		bulky("endless error", func(w *wire) {
			w.status(500)
			w.text("\r\n", `{"error":{"message":"`)
			w.endless("no ")
		}),
		waits("silence", func(*wire) {}),
		waits("silence in the header", func(w *wire) { w.status(200) }),
		waits("silence in the body", func(w *wire) { w.head(len(w.Good)); w.text(string(w.Good[:len(w.Good)/2])) }),
	}
}

// compressed sends a gzip body, although the client did not ask for compression.
func (w *wire) compressed(texts ...[]byte) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	for _, text := range texts {
		_, _ = z.Write(text) // writes to a buffer do not fail
	}
	_ = z.Close()
	w.status(200)
	w.header("Content-Type", w.Type)
	w.header("Content-Encoding", "gzip")
	w.header("Content-Length", strconv.Itoa(packed.Len()))
	w.text("\r\n", packed.String())
}
