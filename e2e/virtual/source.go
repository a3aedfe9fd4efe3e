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
	sendsUnsized  = "unsized" // whole, and has not said how much it is
	sendsHalf     = "breaks"  // and closes the connection
	sendsHalfOnly = "stalls"  // and nothing more
	sendsNothing  = "refuses" // it has no such file
)

// sourceHost is the server that has the rows of jobs.
const sourceHost = "files.example"

// whole reports whether a server sends all rows, if nothing comes between.
func (j *jobCase) whole() bool { return j.From == sendsWhole || j.From == sendsUnsized }

// A fileServer is that server as a process reaches it.
type fileServer struct{ *proc }

// sourceChunk is how much comes at a time, bytes.
const sourceChunk = 100

// stallTimeout is longer than the stops of a schedule may last together.
const stallTimeout = 90 * time.Second

// downloader fetches from the server of files.
func (p *proc) downloader() (*input.Downloader, error) {
	return input.New(input.Config{Transport: fileServer{p}, StallTimeout: stallTimeout, Logger: p.world.log})
}

// RoundTrip begins to send a job's rows.
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

// file is a job's rows as a server has them.
func (j *jobCase) file() []byte {
	var b strings.Builder
	w := csv.NewWriter(&b)
	_ = w.Write([]string{"text"}) // writing to memory cannot fail
	for _, text := range j.texts {
		_ = w.Write([]string{text})
	}
	w.Flush()
	return []byte(b.String())
}

// excuse notes that a download was not what it should be.
func (j *jobCase) excuse() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.excused = true
}

// A stream is rows on their way.
type stream struct {
	ctx  context.Context
	proc *proc
	job  *jobCase
	left []byte
	half int // so much is left when something happens
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

// mayLoseInput reports whether a job may fail for its download: the server is to
// blame, or the process that had asked was gone before all had come, as a download
// is never repeated. That one only lost the job is no reason.
func (j *jobCase) mayLoseInput(rec store.Record) bool {
	bereft := j.bereft()
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.of != nil:
		return bereft || j.root().From != "" && len(j.forgets) > 0 // else it would not have been taken
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
	return j.asker == nil || j.asker.endsBefore(j.ended) || j.world.unheard() >= silence
}

// silence is how long nodes wait for one that does not answer: the default of
// actors.
const silence = 30 * time.Second

// unheard is for how long a node may have been unable to answer.
func (w *world) unheard() (sum time.Duration) {
	for _, f := range w.Faults {
		if f.Kind == "cut" || f.Kind == "stop" || f.Kind == "messages" {
			sum += time.Duration(f.For)
		}
	}
	return sum
}

// judgeSource wants a server to be asked once, and rows that did not come whole
// to be nobody's.
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

// brought notes when the rows of a job were stored as they came.
func (j *jobCase) brought(key string) {
	if id := j.known(); id != "" && key == short(layout.Raw(id)) {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.stored = j.world.now()
	}
}
