package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/llama"
)

// twoModels runs two jobs at the same time, on a chat model and an embedding model. If
// one server has both, it uses that server, else two servers.
func (s realService) twoModels(t *testing.T) {
	if s.kind != llama.Chat {
		t.Skip("the chat model's run has two")
	}
	chat, embeds := s, s
	embeds.kind, embeds.server.model = llama.Embed, s.server.other
	if s.server.other == "" {
		// Start the same kind if it has embeddings, else another kind.
		begin := s.begin
		if s.chatOnly {
			begin = realLlama
		}
		embeds.server = begin(t, llama.Embed, "nobody-knows-"+llama.Embed)
		both := newNode(t, s.server.url, "jobs: {part_interval: 500ms, shard_rows: 256}\n")
		both.engines = append(both.engines, embeds.server.url)
		both.start(t)
		chat.node, embeds.node = both, both
		chat.nature(t)
	}
	embeds.nature(t)
	texts, rows := rowTexts(300), s.rows(120)
	first := chat.submit(t, submission{Inputs: rows, Model: chat.server.model, Sampling: chat.sampling(32)})
	second := embeds.submit(t, submission{Inputs: texts, Model: embeds.server.model})
	for id, want := range map[string]int{first: len(rows), second: len(texts)} {
		chat.succeedsWith(t, id, want)
	}
	chat.inOrder(t, first, rows)
	embeds.inOrder(t, second, texts)
}

// slowest is how many times longer a job may take beside a job with rows that are too
// long. Such rows must be counted, cut and tried. A past fault made the job a hundred
// times slower.
const slowest = 4

// longRows runs a job alone, and again beside two jobs with rows longer than the
// context: one may cut rows, the other may not.
func (s realService) longRows(t *testing.T) {
	if !s.refuses || s.alone || s.kind == llama.Embed {
		t.Skip("the server has no limit that it tells, or its rows take turns")
	}
	rows := rowTexts(200)
	timed := func() time.Duration {
		begun := time.Now()
		s.succeed(t, rows, 32)
		return time.Since(begun)
	}
	timed() // warms the server up
	alone := timed()

	long := rowTexts(32)
	for i := range long {
		switch i % 4 {
		case 0: // more bytes than tokens fit, but fewer tokens
			long[i] = strings.Repeat("word ", 400+i)
		case 1:
			long[i] = strings.Repeat("Häuser ", 3000+i)
		case 2:
			long[i] = strings.Repeat("x", 120_000+i)
		}
	}
	cut := s.submit(t, submission{Inputs: long, Model: s.server.model, Sampling: s.sampling(8)})
	var uncut struct {
		Results string `json:"results"`
	}
	s.call(t, http.MethodPost, "/v1/batch-inference", map[string]any{
		"inputs": long, "model": s.server.model, "sampling_params": s.sampling(8), "truncate_rows": false,
	}, &uncut)
	beside := timed()
	if job := s.finish(t, cut); job.Status != "succeeded" || job.FailedRows != 0 {
		t.Errorf("cut: %+v (%+v)", job, job.FailureReason)
	}
	if job := s.finish(t, uncut.Results); job.Status != "failed" || job.FailureReason == nil || job.FailureReason.Code != "row_too_long" {
		t.Errorf("uncut: %+v (%+v)", job, job.FailureReason)
	}
	alone = max(alone, timed()) // the machine may have become busier
	t.Logf("200 rows took %v alone, %v beside rows beyond the context", alone.Round(time.Millisecond), beside.Round(time.Millisecond))
	if beside > slowest*alone+5*time.Second {
		t.Errorf("200 rows took %v alone and %v beside rows that are too long", alone, beside)
	}
}
