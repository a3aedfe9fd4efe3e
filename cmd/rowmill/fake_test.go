package main

import (
	"io"
	nethttp "net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
	"github.com/rowmill/rowmill/internal/must"
)

// A fakeService reads its answers from a file: a request line with METHOD and path, and
// below it the status and the body of the answer. If a request is in the file several
// times, it gets these answers one after another, and then always the last one.
type fakeService struct {
	*httptest.Server

	mu      sync.Mutex
	answers map[string][]string
}

func startFake(t *testing.T, path string) *fakeService {
	t.Helper()
	text := must.Get(os.ReadFile(path))(t)
	f := &fakeService{answers: map[string][]string{}}
	for block := range strings.SplitSeq(string(text), "\n\n") {
		request, answer, found := strings.Cut(strings.TrimSpace(block), "\n")
		if !found {
			t.Fatalf("%s: no answer below %q", path, request)
		}
		f.answers[request] = append(f.answers[request], answer)
	}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *fakeService) ServeHTTP(w nethttp.ResponseWriter, r *nethttp.Request) {
	if key := r.Header.Get("Authorization"); key != "Key secret" {
		f.answer(w, `401 {"message":"The API key is unknown, revoked or expired.","code":"unknown_key","request_id":"r1"}`)
		return
	}
	_, _ = io.Copy(io.Discard, r.Body) // rows are read to their end before the answer
	request := r.Method + " " + r.URL.RequestURI()
	f.mu.Lock()
	defer f.mu.Unlock()
	answers := f.answers[request]
	switch len(answers) {
	case 0:
		f.answer(w, `404 {"message":"Nothing was found at `+request+`.","code":"not_found","request_id":"r2"}`)
		return
	case 1:
	default:
		f.answers[request] = answers[1:]
	}
	f.answer(w, answers[0])
}

func (f *fakeService) answer(w nethttp.ResponseWriter, answer string) {
	status, body, _ := strings.Cut(answer, " ")
	code, err := strconv.Atoi(status)
	if err != nil {
		code, body = 500, "the answer in the file begins with no status: "+answer
	}
	w.Header().Set("ETag", `"1"`)
	w.WriteHeader(code)
	_, _ = io.WriteString(w, body)
}

// A shell runs command lines of golden files with a fake service. It supports words in
// single quotes, NAME=value before the command and `< FILE` after it. DIR means its own
// folder. With COLUMNS=80, standard output is a terminal of that width, with colours; ESC
// means the character that begins a colour.
type shell struct {
	t       *testing.T
	service *fakeService
	dir     string
}

// run returns the command's output, with "! " before lines of standard error, and the
// exit code unless it is 0. The clock starts at noon and advances by a second with
// every read.
func (s *shell) run(line string) string {
	s.t.Helper()
	line = strings.ReplaceAll(line, "DIR", s.dir)
	words := split(line)
	environ := []string{"HOME=/home/someone", "ROWMILL_SERVER=" + s.service.URL, "ROWMILL_API_KEY=secret"}
	columns := 0
	for len(words) > 0 && strings.Contains(words[0], "=") {
		if width, found := strings.CutPrefix(words[0], "COLUMNS="); found {
			columns = must.Get(strconv.Atoi(width))(s.t)
		}
		environ, words = append(environ, words[0]), words[1:]
	}
	if len(words) == 0 || words[0] != "rowmill" {
		s.t.Fatalf("%q is no command line of rowmill", line)
	}
	var stdin io.Reader = strings.NewReader("")
	if n := len(words); n > 2 && words[n-2] == "<" {
		file := must.Get(os.Open(words[n-1]))(s.t)
		defer file.Close()
		stdin, words = file, words[:n-2]
	}
	var said transcript
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	code := run(s.t.Context(), &terminal.IO{
		In: stdin, Out: said.stream(""), Err: said.stream("! "), Environ: environ,
		Width: func() int { return 80 }, OutWidth: columns, OutColour: columns > 0,
		Clock: func() time.Time { now = now.Add(time.Second); return now },
	}, words[1:])
	text := strings.NewReplacer("\x1b", "ESC", s.dir, "DIR", s.service.URL, "http://service").Replace(said.text.String())
	if code != 0 {
		text += "exit " + strconv.Itoa(code) + "\n"
	}
	return text
}

// split splits a line into words at spaces outside of single quotes.
func split(line string) []string {
	var words []string
	word, quoted, begun := "", false, false
	for _, r := range line + " " {
		switch {
		case r == '\'':
			quoted, begun = !quoted, true
		case r == ' ' && !quoted:
			if begun {
				words = append(words, word)
			}
			word, begun = "", false
		default:
			word, begun = word+string(r), true
		}
	}
	return words
}

// A transcript records the output of several streams in the order of the writes.
type transcript struct {
	text strings.Builder
	last string // the prefix of the stream that wrote the unfinished line
	open bool   // the last line is unfinished
}

type stream struct {
	*transcript
	mark string
}

func (t *transcript) stream(mark string) io.Writer { return stream{t, mark} }

// Write adds output of a stream, with its prefix before each line.
func (s stream) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		if s.open && s.last != s.mark {
			s.text.WriteString("\n")
			s.open = false
		}
		if !s.open {
			s.text.WriteString(s.mark)
		}
		s.text.WriteString(line)
		s.last, s.open = s.mark, !strings.HasSuffix(line, "\n")
	}
	return len(p), nil
}
