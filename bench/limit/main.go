// Command limit measures the lower limit of a client for a batch of chat requests, from
// Parquet to Parquet, with durable answers: one goroutine per connection, raw HTTP/1.1,
// and encoding and scanning for this one server. It shares no code with the service.
// Figures of the service are divided by its figures.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
)

func main() {
	var (
		in      = flag.String("in", "", "Parquet file with columns id and text")
		out     = flag.String("out", "", "Parquet file to write")
		address = flag.String("address", "", "host:port of the inference server")
		model   = flag.String("model", "llama-3.1-8b", "model to ask for")
		workers = flag.Int("workers", 256, "connections")
		scores  = flag.Bool("logprobs", true, "ask for log probabilities and sum them")
	)
	flag.Parse()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))

	n, err := run(context.Background(), job{in: *in, out: *out, workers: *workers, address: *address, codec: newCodec(*model, *scores)})
	if err != nil {
		log.Error("the run failed", "err", err)
		os.Exit(1)
	}
	fmt.Println(n)
}
