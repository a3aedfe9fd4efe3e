package cluster

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// feedFor is the duration of the download of an input.
const feedFor = 4 * time.Second

// A feed serves the input of a job slowly. Nodes must not request it twice.
type feed struct {
	url     string
	server  *http.Server
	content []byte
	asked   atomic.Int64
	once    sync.Once
	first   chan struct{} // closed by the first request
}

// newFeed serves rows as a CSV file with the column text.
func (c *Cluster) newFeed(ctx context.Context, rows []string) (*feed, error) {
	f := &feed{first: make(chan struct{})}
	var file bytes.Buffer
	w := csv.NewWriter(&file)
	records := [][]string{{"text"}}
	for _, row := range rows {
		records = append(records, []string{row})
	}
	if err := w.WriteAll(records); err != nil {
		return nil, err
	}
	f.content = file.Bytes()
	address := "127.0.0.1"
	if c.network != nil {
		address = c.network.TestProcessAddr().String()
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return nil, fmt.Errorf("serve an input: %w", err)
	}
	f.url = "http://" + listener.Addr().String() + "/input.csv"
	f.server = &http.Server{Handler: http.HandlerFunc(f.serve), ReadHeaderTimeout: time.Second}
	go func() { _ = f.server.Serve(listener) }() // ends with Close
	return f, nil
}

func (f *feed) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	f.asked.Add(1)
	f.once.Do(func() { close(f.first) })
	w.Header().Set("Content-Type", "text/csv")
	w.Header().Set("Content-Length", fmt.Sprint(len(f.content)))
	const pieces = 40
	size := (len(f.content) + pieces - 1) / pieces
	for rest := f.content; len(rest) > 0; {
		piece := rest[:min(size, len(rest))]
		if _, err := w.Write(piece); err != nil {
			return
		}
		rest = rest[len(piece):]
		_ = http.NewResponseController(w).Flush() // the next write returns the error
		select {
		case <-r.Context().Done():
			return
		case <-time.After(feedFor / pieces):
		}
	}
}

// begun waits until the input is requested.
func (f *feed) begun(ctx context.Context) error {
	if f == nil {
		return errors.New("the job has its input inline: nothing is downloaded")
	}
	select {
	case <-f.first:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("no node requested the input within %v", patience)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// downloaded reports whether the whole input is in the bucket. After that, no crash of a node
// may fail the job.
func (t *Trial) downloaded() bool {
	_, err := os.Stat(filepath.Join(t.bucketRoot(), "jobs", t.Job, "input", "raw"))
	return err == nil
}

func (f *feed) close() {
	if f != nil {
		_ = f.server.Close() // the feed ends
	}
}

// downloadFailed is the failure code that a job may have after the crash of an owner during
// the download.
const downloadFailed = "download_failed"

// killDownload kills the owner, or all nodes, during the download.
func killDownload(all bool) func(context.Context, *Trial) error {
	return func(ctx context.Context, t *Trial) error {
		n, err := t.owner(ctx)
		if err != nil {
			return err
		}
		strike := Strike{Fault: "kill " + n.name + " in the ingest"}
		if all {
			strike.Fault = "kill all in the ingest"
		}
		strike.OwnerLost, strike.AllLost = !all, all
		for _, other := range t.nodes() {
			if (all || other == n) && other.up() {
				if other.Runs {
					strike.Lost++
				}
				other.kill()
			}
		}
		t.struck(strike)
		time.Sleep(t.between(shortest, longest))
		return t.Repair(ctx)
	}
}
