// Command plain is the batch client that most people would write in Go, for comparison:
// a worker pool, net/http and encoding/json.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"

	"github.com/rowmill/rowmill/bench/rows"
)

func main() {
	var (
		in      = flag.String("in", "", "Parquet file with columns id and text")
		out     = flag.String("out", "", "Parquet file to write")
		address = flag.String("address", "", "host:port of the inference server")
		model   = flag.String("model", "llama-3.1-8b", "model to ask for")
		workers = flag.Int("workers", 256, "requests in flight")
		scores  = flag.Bool("logprobs", true, "ask for log probabilities and sum them")
	)
	flag.Parse()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))

	// Without MaxIdleConnsPerHost nearly every request would open a connection.
	client := &http.Client{Transport: &http.Transport{MaxIdleConns: *workers, MaxIdleConnsPerHost: *workers}}
	ask := newAsk(client, "http://"+*address+"/v1/chat/completions", *model, *scores)
	n, err := rows.Run(context.Background(), rows.Job{
		In: *in, Out: *out, Workers: *workers,
		NewAsk: func() (rows.Ask, func(), error) { return ask, func() {}, nil },
	})
	if err != nil {
		log.Error("the run failed", "err", err)
		os.Exit(1)
	}
	fmt.Println(n)
}

var errNoAnswer = errors.New("reply holds no answer")

func newAsk(client *http.Client, url, model string, logprobs bool) rows.Ask {
	return func(ctx context.Context, text []byte) (rows.Answer, error) {
		body, err := json.Marshal(rows.NewRequest(model, text, logprobs))
		if err != nil {
			return rows.Answer{}, fmt.Errorf("encode request: %w", err)
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			return rows.Answer{}, fmt.Errorf("make request: %w", err)
		}
		request.Header.Set("Content-Type", "application/json")
		reply, err := client.Do(request)
		if err != nil {
			return rows.Answer{}, fmt.Errorf("send request: %w", err)
		}
		defer reply.Body.Close()
		if reply.StatusCode != http.StatusOK {
			return rows.Answer{}, fmt.Errorf("server answers %s", reply.Status)
		}
		data, err := io.ReadAll(reply.Body)
		if err != nil {
			return rows.Answer{}, fmt.Errorf("read reply: %w", err)
		}
		var response rows.Response
		if err := json.Unmarshal(data, &response); err != nil {
			return rows.Answer{}, fmt.Errorf("decode reply: %w", err)
		}
		answer, ok := response.Answer()
		if !ok {
			return rows.Answer{}, errNoAnswer
		}
		return answer, nil
	}
}
