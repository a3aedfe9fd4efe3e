// Command limit measures the lower limit of a client for a batch of chat requests, from
// Parquet to Parquet, with durable answers: one goroutine per connection, raw HTTP/1.1,
// and either encoding/json (-json std, the usual start of a Go program) or hand-written
// encoding and scanning (-json scan, the least possible). Figures of the service are
// divided by its figures.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"

	"github.com/rowmill/rowmill/bench/rows"
)

func main() {
	var (
		in      = flag.String("in", "", "Parquet file with columns id and text")
		out     = flag.String("out", "", "Parquet file to write")
		address = flag.String("address", "", "host:port of the inference server")
		model   = flag.String("model", "llama-3.1-8b", "model to ask for")
		workers = flag.Int("workers", 256, "connections")
		json    = flag.String("json", "std", "std or scan")
		scores  = flag.Bool("logprobs", true, "ask for log probabilities and sum them")
	)
	flag.Parse()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))

	codec, err := newCodec(*json, *model, *scores)
	if err != nil {
		log.Error("choosing the codec failed", "err", err)
		os.Exit(2)
	}
	ctx := context.Background()
	n, err := rows.Run(ctx, rows.Job{
		In: *in, Out: *out, Workers: *workers,
		NewAsk: func() (rows.Ask, func(), error) {
			conn, err := dial(ctx, *address)
			if err != nil {
				return nil, nil, err
			}
			return conn.ask(codec), conn.close, nil
		},
	})
	if err != nil {
		log.Error("the run failed", "err", err)
		os.Exit(1)
	}
	fmt.Println(n)
}
