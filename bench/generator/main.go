// Command generator keeps a fixed number of requests in flight on an inference server
// until every row is answered, and drops the answers. It measures the highest rate of
// the server for a client that does nothing else and knows the best number of requests.
// It prints the number of answered rows. The service's rate is compared with the
// generator's best rate.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"

	"github.com/parquet-go/parquet-go"
	"golang.org/x/sync/errgroup"
)

func main() {
	var (
		in       = flag.String("in", "", "Parquet file with a column text")
		address  = flag.String("address", "", "host:port of the inference server")
		model    = flag.String("model", "llama-3.1-8b", "model to ask for")
		inFlight = flag.Int("in-flight", 256, "requests in flight")
		fields   = flag.String("fields", `{"logprobs":true,"top_logprobs":1}`, "JSON object: additional fields of every request")
	)
	flag.Parse()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	requests, err := encode(*in, *address, *model, *fields)
	if err != nil {
		log.Error("encoding the requests failed", "err", err)
		os.Exit(1)
	}
	if err := drive(requests, *address, *inFlight); err != nil {
		log.Error("driving the server failed", "err", err)
		os.Exit(1)
	}
	fmt.Println(len(requests))
}

// encode returns the requests of all rows in order, with head and body.
func encode(in, address, model, fields string) ([][]byte, error) {
	type row struct {
		Text string `parquet:"text"`
	}
	rows, err := parquet.ReadFile[row](in)
	if err != nil {
		return nil, fmt.Errorf("read input: %w", err)
	}
	body := make(map[string]any)
	if err := json.Unmarshal([]byte(fields), &body); err != nil {
		return nil, fmt.Errorf("-fields: %w", err)
	}
	body["model"] = model
	requests := make([][]byte, len(rows))
	for i, r := range rows {
		body["messages"] = []any{map[string]string{"role": "user", "content": r.Text}}
		data, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("row %d: %w", i, err)
		}
		requests[i] = append([]byte("POST /v1/chat/completions HTTP/1.1\r\nHost: "+address+
			"\r\nContent-Type: application/json\r\nContent-Length: "+strconv.Itoa(len(data))+"\r\n\r\n"), data...)
	}
	return requests, nil
}

// drive sends the requests in order, each on the first free connection.
func drive(requests [][]byte, address string, inFlight int) error {
	var next atomic.Int64
	group := new(errgroup.Group)
	for range min(inFlight, len(requests)) {
		group.Go(func() error {
			c := conn{address: address}
			defer c.close()
			for i := next.Add(1) - 1; i < int64(len(requests)); i = next.Add(1) - 1 {
				if err := c.exchange(requests[i]); err != nil {
					return fmt.Errorf("row %d: %w", i, err)
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// conn is a connection, opened on first use.
type conn struct {
	address string
	net     net.Conn // nil while not connected
	in      *bufio.Reader
}

func (c *conn) close() {
	if c.net != nil {
		c.net.Close()
		c.net = nil
	}
}

// exchange sends a request and drops the answer. It retries on a new connection if the
// server has closed a used one, which only shows at this point.
func (c *conn) exchange(request []byte) error {
	if c.net != nil {
		if err := c.begin(request); err == nil {
			return c.drop()
		}
		c.close()
	}
	var err error
	if c.net, err = net.Dial("tcp", c.address); err != nil { //nolint:noctx // the process ends with it
		c.net = nil
		return fmt.Errorf("connect: %w", err)
	}
	c.in = bufio.NewReaderSize(c.net, 16<<10)
	if err := c.begin(request); err != nil {
		return err
	}
	return c.drop()
}

// begin sends a request and waits for the first byte of the answer.
func (c *conn) begin(request []byte) error {
	if _, err := c.net.Write(request); err != nil {
		return fmt.Errorf("send request: %w", err)
	}
	if _, err := c.in.Peek(1); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	return nil
}

// drop reads a whole answer, chunked or not.
func (c *conn) drop() error {
	response, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the server answers %s", response.Status)
	}
	if response.Close {
		c.close()
	}
	return nil
}
