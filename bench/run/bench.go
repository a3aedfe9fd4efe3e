package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"
)

// bench holds the shared settings and servers of the benchmarks.
type bench struct {
	options
	log *slog.Logger

	files    *http.Server // serves dir, and accepts spans
	fileBase string
	spans    atomic.Int64 // received bytes of spans
}

func newBench(log *slog.Logger, o options) (*bench, error) {
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return nil, fmt.Errorf("create work directory: %w", err)
	}
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return nil, fmt.Errorf("find work directory: %w", err)
	}
	b := &bench{options: o, log: log}
	b.dir = dir
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("serve files: %w", err)
	}
	b.fileBase = "http://" + listener.Addr().String() + "/"
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServer(http.Dir(b.dir)))
	mux.HandleFunc("POST /v1/traces", func(_ http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body) // a broken body shows in the count
		b.spans.Add(n)
	})
	b.files = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		if err := b.files.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("serving files failed", "err", err)
		}
	}()
	return b, nil
}

func (b *bench) close() { _ = b.files.Close() } // nothing uses the server any more

// build compiles one of the contenders and returns its path.
func (b *bench) build(ctx context.Context, name string) (string, error) {
	if b.built != "" {
		return filepath.Join(b.built, name), nil
	}
	path := filepath.Join(b.dir, name)
	out, err := exec.CommandContext(ctx, "go", "build", "-o", path, "./bench/"+name).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build %s: %w: %s", name, err, out)
	}
	return path, nil
}

// startNull starts the null server and returns its address.
func (b *bench) startNull(ctx context.Context, args ...string) (*process, string, error) {
	path, err := b.build(ctx, "null")
	if err != nil {
		return nil, "", err
	}
	p, err := startProcess(filepath.Join(b.dir, "null.log"), os.Environ(), path, args...)
	if err != nil {
		return nil, "", err
	}
	address, err := p.firstLine()
	if err != nil {
		p.end()
		return nil, "", err
	}
	return p, address, nil
}

// fileOf returns the submission of a file of the work directory with the columns id and
// text.
func (b *bench) fileOf(path string) submission {
	return submission{Inputs: b.fileBase + filepath.Base(path), Model: model, Column: "text", IDColumn: "id", Priority: 1}
}

// wantRows checks the number of rows that a contender prints.
func wantRows(printed string, want int64) error {
	if got, err := strconv.ParseInt(printed, 10, 64); err != nil || got != want {
		return fmt.Errorf("contender wrote %q rows, want %d", printed, want)
	}
	return nil
}
