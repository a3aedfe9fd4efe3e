// Command null is an inference server without cost: every chat request gets the same
// answer at once, every text to embed a fixed vector. Benchmarks of everything around
// the engine use it. It reads requests from raw connections, looks for the three
// properties that change its answer (log probabilities, the number of texts, the
// vector's encoding) and writes prepared bytes. It does not simulate a server: see sim
// for that.
package main

import (
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	var (
		listen    = flag.String("listen", "127.0.0.1:0", "address to listen on; it is printed on standard output")
		models    = flag.String("models", "llama-3.1-8b", "comma-separated model names to serve")
		context   = flag.Int("context", 131072, "context length to report, tokens")
		tokens    = flag.Int("tokens", 110, "tokens per answer, about 4.7 bytes each")
		dimension = flag.Int("dimension", 1024, "floats of an embedding")
		delay     = flag.Duration("delay", 0, "time per answer")
		slots     = flag.Int("slots", 0, "concurrent answers; further requests wait; 0: no limit")
	)
	flag.Parse()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))

	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Error("listening failed", "err", err)
		os.Exit(1)
	}
	fmt.Println(listener.Addr())

	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	var stopping atomic.Bool
	go func() {
		<-stop
		stopping.Store(true)
		listener.Close()
	}()

	s := newServer(strings.Split(*models, ","), *context, *tokens, *dimension, *delay, *slots)
	for {
		conn, err := listener.Accept()
		if err != nil {
			if stopping.Load() {
				log.Info("served", "requests", s.requests.Load())
				return
			}
			log.Error("accepting a connection failed", "err", err)
			os.Exit(1)
		}
		go s.serve(conn)
	}
}

// server holds the prepared answers.
type server struct {
	delay    time.Duration
	slots    chan struct{} // one element per running request; nil: no limit
	requests atomic.Int64
	waiting  atomic.Int64
	running  atomic.Int64
	first    atomic.Int64 // time of the first request since GET /null/first, Unix nanoseconds; 0: none

	models []byte          // body of GET /v1/models
	plain  []byte          // a chat answer, whole response
	scored []byte          // the same with log probabilities
	floats [vectors][]byte // embeddings as JSON arrays
	base64 [vectors][]byte // the same as JSON strings
	vector atomic.Uint32   // index of the last used vector
}
