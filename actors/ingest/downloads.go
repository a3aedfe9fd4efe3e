package ingest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowmill/rowmill/internal/panics"
	"github.com/rowmill/rowmill/internal/textfmt"
)

// Downloads has the running downloads of a node. A download continues if the node loses
// the job, for example if Redis does not answer for longer than a lease. An input is
// requested only once, so the next owner waits for this download.
type Downloads struct {
	cfg     DownloadsConfig
	life    context.Context // ends all downloads
	end     context.CancelFunc
	mu      sync.Mutex
	running map[string]*download // by id of the job
	drains  bool                 // no download begins any more
}

// ErrDrains means that the input of a job was not requested, because the node drains.
var ErrDrains = errors.New("the node drains, so it starts no download")

// DownloadsConfig has the settings of Downloads. All fields are required.
type DownloadsConfig struct {
	All *sync.WaitGroup // counts the goroutines of the downloads
	// Wanted reports whether a job may still use its input. It is called regularly after
	// the node has lost the job.
	Wanted func(ctx context.Context, job string) bool
	// Ended is called at the end of a download. lost is true if the node lost the job
	// during the download. Then only this call reports the end.
	Ended func(job string, lost bool, err error)
}

// NewDownloads returns a Downloads without running downloads.
func NewDownloads(cfg DownloadsConfig) *Downloads {
	s := &Downloads{cfg: cfg, running: make(map[string]*download)}
	s.life, s.end = context.WithCancel(context.Background())
	return s
}

// Stop ends all downloads.
func (s *Downloads) Stop() { s.end() }

// A download is one running download of the input of a job.
type download struct {
	ctx  context.Context // ends with the node, or when no job needs the input any more
	stop context.CancelFunc
	done chan struct{} // closed when the download has ended
	err  error         // error of the download; valid after done is closed

	stored bool         // the input is in the bucket; false if shards replace it; valid after done is closed
	came   atomic.Int64 // number of bytes received
	size   atomic.Int64 // size in bytes that the server announced; 0 if it announced none
	// tail has the last bytes for a reader during the download; nil if there is no reader.
	tail *downloadTail
}

// Running reports whether the input of a job is being downloaded.
func (s *Downloads) Running(job string) bool { return s.findRunning(job) != nil }

// The messages that a client sees while a job downloads or reads its input.
const (
	downloading = "Downloading the input."
	Reading     = "Reading the input."
)

// isDownloading reports whether the message of a job says that its input is being
// downloaded.
func isDownloading(message string) bool {
	return strings.HasPrefix(message, strings.TrimSuffix(downloading, "."))
}

// Message returns the message of a job that waits for its input: the progress of the
// download, or Reading.
func (s *Downloads) Message(job string) string {
	d := s.findRunning(job)
	if d == nil {
		return Reading
	}
	came, size := d.came.Load(), d.size.Load()
	switch {
	case came == 0:
		return downloading
	case size == 0:
		return fmt.Sprintf("Downloading the input: %s so far.", textfmt.FormatSize(came))
	}
	return fmt.Sprintf("Downloading the input: %s of %s.", textfmt.FormatSize(came), textfmt.FormatSize(size))
}

// IsIdle reports whether this node downloads no input.
func (s *Downloads) IsIdle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.running) == 0
}

// findRunning returns the running download of a job; nil if there is none.
func (s *Downloads) findRunning(job string) *download {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running[job]
}

// Drain lets no more download begin. The running downloads continue.
func (s *Downloads) Drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drains = true
}

// begin adds a download for a job. The caller must then call run or remove. The error is
// ErrDrains after Drain.
func (s *Downloads) begin(job string) (*download, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drains {
		return nil, ErrDrains
	}
	d := &download{done: make(chan struct{})}
	d.ctx, d.stop = context.WithCancel(s.life)
	s.running[job] = d
	return d, nil
}

// remove removes a download that has ended with err, and wakes all callers of wait.
func (s *Downloads) remove(job string, d *download, err error) {
	s.mu.Lock()
	delete(s.running, job)
	s.mu.Unlock()
	d.err = err
	d.stop()
	close(d.done)
}

// run calls fetch in the background. The context owner ends when this node loses the
// job.
func (s *Downloads) run(owner context.Context, job string, d *download, fetch func() error) {
	s.cfg.All.Add(2)
	go func() {
		defer s.cfg.All.Done()
		err := panics.Catch(fetch)
		lost := owner.Err() != nil
		s.remove(job, d, err)
		s.cfg.Ended(job, lost, err)
	}()
	go func() {
		defer s.cfg.All.Done()
		s.stopWhenUnwanted(owner, job, d)
	}()
}

// wantedInterval is the time between two checks whether a job still needs an input.
const wantedInterval = time.Second

// stopWhenUnwanted stops a download when this node has lost the job and the job no longer needs
// the input.
func (s *Downloads) stopWhenUnwanted(owner context.Context, job string, d *download) {
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

// failed reports whether the download has ended with an error.
func (d *download) failed() bool {
	select {
	case <-d.done:
		return d.err != nil
	default:
		return false
	}
}

// wait waits for the end of a download and returns its error, or the error of ctx.
func (d *download) wait(ctx context.Context) error {
	select {
	case <-d.done:
		return d.err
	case <-ctx.Done():
		return ctx.Err()
	}
}
