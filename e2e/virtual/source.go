package virtual

import (
	"context"
	"encoding/csv"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/store"
)

// How a server sends a job's rows.
const (
	sendsWhole    = "whole"
	sendsUnsized  = "unsized" // whole, without Content-Length
	sendsHalf     = "breaks"  // half, and closes the connection
	sendsHalfOnly = "stalls"  // half, and then nothing more
	sendsNothing  = "refuses" // it has no such file
)

// sourceHost is the server with the rows of jobs.
const sourceHost = "files.example"

// whole reports whether a server sends all rows, unless a fault strikes.
func (j *jobCase) whole() bool { return j.From == sendsWhole || j.From == sendsUnsized }

// A fileServer is the access of a process to this server.
type fileServer struct{ *proc }

// sourceChunk is the largest read from the server in bytes.
const sourceChunk = 100

// stallTimeout is longer than the sum of all stops of a schedule.
const stallTimeout = 90 * time.Second

// downloader returns a downloader for the server of files.
func (p *proc) downloader() (*input.Downloader, error) {
	return input.New(input.Config{Transport: fileServer{p}, StallTimeout: stallTimeout, Logger: p.world.log})
}

// RoundTrip starts to send the rows of a job.
func (s fileServer) RoundTrip(req *http.Request) (*http.Response, error) {
	name := strings.TrimPrefix(req.URL.Path, "/")
	n, err := strconv.Atoi(name)
	if err != nil || n < 0 || n >= len(s.world.account.jobs) {
		s.world.account.wrong("%s is asked for, which no job names", req.URL)
		return nil, http.ErrNotSupported
	}
	j := s.world.account.jobs[n]
	err = s.run(req.Context(), effect{kind: "source.get", key: name, do: func() error {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.asked++
		j.asker = s.proc
		return nil
	}})
	if err != nil {
		j.excuse()
		return nil, err
	}
	answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Request: req, Body: http.NoBody}
	if !j.whole() {
		j.excuse()
	}
	if j.From == sendsNothing {
		answer.StatusCode = http.StatusNotFound
		return answer, nil
	}
	file := j.file()
	if answer.ContentLength = int64(len(file)); j.From == sendsUnsized {
		answer.ContentLength = -1
	}
	answer.Body = &stream{ctx: req.Context(), proc: s.proc, job: j, left: file, half: len(file) / 2}
	return answer, nil
}

// file returns the rows of a job as a CSV file.
func (j *jobCase) file() []byte {
	var b strings.Builder
	w := csv.NewWriter(&b)
	_ = w.Write([]string{"text"}) // writing to memory cannot fail
	for _, text := range j.input {
		_ = w.Write([]string{text})
	}
	w.Flush()
	return []byte(b.String())
}

// excuse notes that a download may fail.
func (j *jobCase) excuse() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.excused = true
}

// A stream sends rows.
type stream struct {
	ctx  context.Context
	proc *proc
	job  *jobCase
	left []byte
	half int // remaining bytes at which a fault of the server begins
}

func (s *stream) Close() error { return nil }

func (s *stream) Read(p []byte) (int, error) {
	if err := pause(s.ctx, s.proc.world.paceOf()/2); err != nil {
		return 0, err
	}
	if err := s.proc.awake(s.job.From); err != nil {
		return 0, err
	}
	if len(s.left) <= s.half {
		switch s.job.From {
		case sendsHalf:
			return 0, io.ErrUnexpectedEOF
		case sendsHalfOnly:
			<-s.ctx.Done()
			return 0, s.ctx.Err()
		}
	}
	if len(s.left) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), sourceChunk)], s.left)
	s.left = s.left[n:]
	return n, nil
}

// mayLoseInput reports whether a job may fail because of its download: the server broke it,
// or the process that downloaded it ended early, because a download is never repeated. A
// change of owner alone is no reason.
func (j *jobCase) mayLoseInput(rec store.Record) bool {
	bereft := j.bereft()
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.of != nil:
		return bereft || j.root().From != "" && len(j.forgets) > 0 // without a fault the continuation is refused
	case j.From == "" || rec.Epoch == 1:
		return j.excused
	}
	last := slices.IndexFunc(j.history, func(g glimpse) bool { return g.epoch == rec.Epoch })
	switch {
	case j.excused, last < 0, len(j.forgets) > 0:
		return true
	case j.stored > 0 && j.stored < j.history[last].at:
		return false
	}
	ended := j.ended
	if j.world.unsure() > 0 { // a wrong clock may have set it
		ended = j.seen
	}
	return j.asker == nil || j.asker.endsBefore(ended) || j.world.unheard() >= silence
}

// silence is the time that nodes wait for a silent node: the default of actors.
const silence = 30 * time.Second

// unheard returns how long a node may have been unable to answer.
func (w *world) unheard() (sum time.Duration) {
	for _, f := range w.Faults {
		if f.Kind == "cut" || f.Kind == "stop" || f.Kind == "messages" {
			sum += time.Duration(f.For)
		}
	}
	return sum
}

// judgeSource checks that the input was downloaded once, and that no job succeeded with a
// part of its input.
func (j *jobCase) judgeSource(status rowmill.Status) {
	j.mu.Lock()
	asked, forgets := j.asked, len(j.forgets)
	j.mu.Unlock()
	if asked > 1 && forgets == 0 {
		j.wrong("the rows of job %d were asked for %d times", j.index, asked)
	}
	if status == rowmill.StatusSucceeded && j.From != "" && !j.whole() {
		j.wrong("job %d has succeeded, whose server %s", j.index, j.From)
	}
}

// brought notes when the downloaded file of a job was stored.
func (j *jobCase) brought(key string) {
	if id := j.known(); id != "" && key == short(layout.RawInputKey(id)) {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.stored = j.world.now()
	}
}
