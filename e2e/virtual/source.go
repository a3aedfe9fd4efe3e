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

	"github.com/rowmill/rowmill/input"
)

// How a server sends a job's rows.
const (
	sendsWhole = "whole"
	stalls     = "stalls"  // in the middle, and says nothing more
	breaksOff  = "breaks"  // in the middle
	changes    = "changes" // and more comes than was announced
	refuses    = "refuses" // it has no such file
)

// sourceHost is the server that has the rows of jobs.
const sourceHost = "files.example"

// A source is that server as a process reaches it.
type source struct{ *proc }

// sourceChunk is how much comes at a time, bytes.
const sourceChunk = 100

// stallTimeout is longer than any machine is stopped.
const stallTimeout = 30 * time.Second

// downloader fetches from the source, where a job of the schedule is there.
func (p *proc) downloader() (*input.Downloader, error) {
	if !slices.ContainsFunc(p.world.Jobs, func(j Job) bool { return j.From != "" }) {
		return p.world.downloader, nil
	}
	return input.New(input.Config{Transport: source{p}, StallTimeout: stallTimeout, Logger: p.world.log})
}

// RoundTrip begins to send a job's rows.
func (s source) RoundTrip(req *http.Request) (*http.Response, error) {
	name := strings.TrimPrefix(req.URL.Path, "/")
	n, err := strconv.Atoi(name)
	if err != nil || n >= len(s.world.account.jobs) {
		s.world.account.wrong("the rows of %s are asked for", req.URL)
		return nil, http.ErrNotSupported
	}
	j := s.world.account.jobs[n]
	err = s.run(req.Context(), effect{kind: "source.get", key: name, do: func() error {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.asked++
		return nil
	}})
	if err != nil {
		j.excuse()
		return nil, err
	}
	answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Request: req, Body: http.NoBody}
	if j.From == refuses {
		j.excuse()
		answer.StatusCode = http.StatusNotFound
		return answer, nil
	}
	file := j.file()
	answer.ContentLength = int64(len(file))
	if j.From == changes {
		file = append(file, file[len(file)/2:]...)
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
	w := s.proc.world
	if err := pause(s.ctx, time.Duration(w.Pace)/2); err != nil {
		return 0, err
	}
	if err := s.proc.awake(s.ctx); err != nil {
		s.job.excuse()
		return 0, err
	}
	if s.job.From != sendsWhole {
		s.job.excuse()
	}
	if len(s.left) <= s.half {
		switch s.job.From {
		case stalls:
			<-s.ctx.Done()
			return 0, s.ctx.Err()
		case breaksOff:
			return 0, io.ErrUnexpectedEOF
		}
	}
	if len(s.left) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), sourceChunk)], s.left)
	s.left = s.left[n:]
	return n, nil
}

// mayLoseInput reports whether a job's download may have failed: the server is to
// blame, or there was another owner, and a download is never repeated.
func (j *jobCase) mayLoseInput(epoch int64) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.From != "" && (j.excused || epoch > 1)
}

// judgeSource wants a server to be asked once, and rows that did not come whole
// to be nobody's.
func (j *jobCase) judgeSource(succeeded bool) {
	j.mu.Lock()
	asked, forgets := j.asked, len(j.forgets)
	j.mu.Unlock()
	if asked > 1 && forgets == 0 {
		j.wrong("the rows of job %d were asked for %d times", j.index, asked)
	}
	if succeeded && j.From != "" && j.From != sendsWhole {
		j.wrong("job %d has succeeded, whose server %s", j.index, j.From)
	}
}
