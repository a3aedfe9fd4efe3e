package ingest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowmill/rowmill/internal/contain"
	"github.com/rowmill/rowmill/internal/spelling"
)

// Downloads are the inputs that a node is fetching. What has begun goes on when
// the node loses the job, as where Redis is away for longer than a lease: an
// input is asked for only once, and the next owner waits for it.
type Downloads struct {
	cfg     DownloadsConfig
	life    context.Context
	end     context.CancelFunc
	mu      sync.Mutex
	running map[string]*download // by job
}

// DownloadsConfig is what Downloads need. Nothing has a default.
type DownloadsConfig struct {
	All *sync.WaitGroup // of what is at work
	// Wanted reports whether the job may still come to use its input. It is asked
	// from time to time once the job is lost.
	Wanted func(ctx context.Context, job string) bool
	// Ended hears that a download is over, how, and whether its job was lost
	// meanwhile: then nobody else knows.
	Ended func(job string, lost bool, err error)
}

// NewDownloads makes Downloads of which none has begun.
func NewDownloads(cfg DownloadsConfig) *Downloads {
	s := &Downloads{cfg: cfg, running: make(map[string]*download)}
	s.life, s.end = context.WithCancel(context.Background())
	return s
}

// Stop ends all downloads.
func (s *Downloads) Stop() { s.end() }

// A download is one of them.
type download struct {
	ctx  context.Context // ends with the node, or once nobody wants the input
	stop context.CancelFunc
	done chan struct{}
	err  error // once done

	stored bool         // likewise; else the shards stand in its place
	came   atomic.Int64 // bytes
	size   atomic.Int64 // those that the server announced; 0 where it did not
	tail   *tail        // for who reads meanwhile; nil for nobody
}

// Running reports whether the input of a job is being fetched.
func (s *Downloads) Running(job string) bool { return s.of(job) != nil }

// What a job that reads its input says of that.
const (
	downloading = "Downloading the input."
	Reading     = "Reading the input."
)

// isDownloading reports whether a job says that its input is downloaded.
func isDownloading(message string) bool {
	return strings.HasPrefix(message, strings.TrimSuffix(downloading, "."))
}

// Message says for a person what is done for the input of a job: it is
// downloaded, as far as it has come, or read.
func (s *Downloads) Message(job string) string {
	d := s.of(job)
	if d == nil {
		return Reading
	}
	came, size := d.came.Load(), d.size.Load()
	switch {
	case came == 0:
		return downloading
	case size == 0:
		return fmt.Sprintf("Downloading the input: %s so far.", spelling.Size(came))
	}
	return fmt.Sprintf("Downloading the input: %s of %s.", spelling.Size(came), spelling.Size(size))
}

// None reports whether no input is being fetched.
func (s *Downloads) None() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.running) == 0
}

// of is the download for a job, nil where there is none.
func (s *Downloads) of(job string) *download {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running[job]
}

// begin enters a download, which then runs or is struck.
func (s *Downloads) begin(job string) *download {
	d := &download{done: make(chan struct{})}
	d.ctx, d.stop = context.WithCancel(s.life)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[job] = d
	return d
}

// strike takes out a download that is over.
func (s *Downloads) strike(job string, d *download, err error) {
	s.mu.Lock()
	delete(s.running, job)
	s.mu.Unlock()
	d.err = err
	d.stop()
	close(d.done)
}

// run fetches in the background, for an owner whose licence is a context.
func (s *Downloads) run(owner context.Context, job string, d *download, fetch func() error) {
	s.cfg.All.Add(2)
	go func() {
		defer s.cfg.All.Done()
		err := contain.Run(fetch)
		lost := owner.Err() != nil
		s.strike(job, d, err)
		s.cfg.Ended(job, lost, err)
	}()
	go func() {
		defer s.cfg.All.Done()
		s.follow(owner, job, d)
	}()
}

// wantedInterval is the time between looks at whether an input is still wanted.
const wantedInterval = time.Second

// follow stops a download whose job is over.
func (s *Downloads) follow(owner context.Context, job string, d *download) {
	select {
	case <-d.done:
		return
	case <-owner.Done():
	}
	for s.cfg.Wanted(d.ctx, job) {
		select {
		case <-d.done:
			return
		case <-time.After(wantedInterval):
		}
	}
	d.stop()
}

// failed reports whether it is over and has brought nothing.
func (d *download) failed() bool {
	select {
	case <-d.done:
		return d.err != nil
	default:
		return false
	}
}

// wait returns the error of a download once it is over, or that of ctx.
func (d *download) wait(ctx context.Context) error {
	select {
	case <-d.done:
		return d.err
	case <-ctx.Done():
		return ctx.Err()
	}
}
