package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/tokenize/prompt"
)

// A Tokenizer turns text into tokens as a model does.
type Tokenizer interface {
	// Count is how many tokens a text has.
	Count(text string) int
	// Truncate is the longest beginning of a text, cut between characters,
	// that has at most n tokens.
	Truncate(text string, n int) string
}

// A meter counts the tokens of a job's prompts as its server will. It is safe
// for concurrent use.
type meter struct {
	tokens  Tokenizer
	measure *prompt.Measure
	known   bool // by the model's own vocabulary; otherwise calibrated
	learned *prompt.Calibration
	errors  prometheus.Gauge
}

// byteCounter stands in where no vocabulary is known: a token is taken to have
// four bytes, until the server's counts say otherwise.
type byteCounter struct{}

const bytesPerToken = 4

func (byteCounter) Count(text string) int { return (len(text) + bytesPerToken - 1) / bytesPerToken }

func (byteCounter) Truncate(text string, n int) string {
	if n *= bytesPerToken; n < len(text) {
		return beginning(text, n)
	}
	return text
}

// beginning returns at most n bytes of text, cut between two characters.
func beginning(text string, n int) string {
	for n = max(0, min(n, len(text))); n > 0 && n < len(text) && text[n]&0xC0 == 0x80; n-- {
	}
	return text[:n]
}

// count is how many tokens the prompt of a row has.
func (m *meter) count(text string) int {
	n := m.measure.Count(text)
	if m.known {
		return n
	}
	n, _, _ = m.learned.Estimate(n)
	return n
}

// exact reports whether the server is sure to count as count does.
func (m *meter) exact(text string) bool { return m.known && m.measure.Exact(text) }

// observe compares with what a server says it counted.
func (m *meter) observe(text string, used int64) {
	m.learned.Observe(m.measure.Count(text), int(used))
	m.errors.Set(m.learned.Report().MeanError)
}

// fit returns the longest beginning of text whose prompt has at most limit
// tokens. Where our count is not that of the server, ask does the counting;
// nil where it cannot. ok is false when not even an empty text fits.
func (m *meter) fit(ctx context.Context, text string, limit int, ask func(context.Context, string) (int, error)) (cut string, ok bool, err error) {
	if len(text)+m.measure.Overhead() <= limit { // a token has at least one byte
		return text, true, nil
	}
	if m.exact(text) || ask == nil {
		if m.known {
			cut, _, ok = m.measure.Fit(text, limit, m.tokens.Truncate)
			return cut, ok, nil
		}
		if n := m.count(text); n > limit {
			text = beginning(text, int(float64(len(text))*float64(limit)/float64(n)))
		}
		return text, true, nil
	}
	return fitAsking(ctx, text, limit, ask)
}

// fitAsking cuts until the server counts few enough tokens: each time by the
// share that is too much, so that two or three questions are enough.
func fitAsking(ctx context.Context, text string, limit int, ask func(context.Context, string) (int, error)) (string, bool, error) {
	for {
		n, err := ask(ctx, text)
		if err != nil || n <= limit {
			return text, true, err
		}
		if text == "" {
			return text, false, nil
		}
		text = beginning(text, min(len(text)-1, len(text)*limit/n))
	}
}

// meters makes the meters of a node's jobs. What is learned about a model
// outlives the job it was learned from.
type meters struct {
	tokenizers func(rowmill.Model) (Tokenizer, string, error)
	errors     *prometheus.GaugeVec // by model
	log        *slog.Logger

	mu      sync.Mutex
	learned map[string]*prompt.Calibration
	warned  map[string]bool
}

func newMeters(cfg Config, m *metrics) *meters {
	return &meters{
		tokenizers: cfg.Tokenizers, errors: m.countErrors, log: cfg.Logger,
		learned: make(map[string]*prompt.Calibration), warned: make(map[string]bool),
	}
}

// meter returns what counts the prompts of a job.
func (s *meters) meter(spec *rowmill.Spec) (*meter, error) {
	template, err := prompt.Find(spec.Model.Template)
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", spec.Model.ID, err)
	}
	tokens, warning, err := s.tokenizers(spec.Model)
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", spec.Model.ID, err)
	}
	known := tokens != nil && warning == ""
	if tokens == nil {
		tokens = byteCounter{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	learned := s.learned[spec.Model.ID]
	if learned == nil {
		learned = new(prompt.Calibration)
		s.learned[spec.Model.ID] = learned
	}
	if warning != "" && !s.warned[spec.Model.ID] {
		s.warned[spec.Model.ID] = true
		s.log.Warn("tokens are estimated", "model", spec.Model.ID, "why", warning)
	}
	return &meter{
		tokens:  tokens,
		measure: template.Measure(tokens, prompt.Job{System: spec.System, Extras: spec.Model.RequestExtras}),
		known:   known, learned: learned, errors: s.errors.WithLabelValues(spec.Model.ID),
	}, nil
}

// countOn returns the question how many tokens a prompt has to the server
// behind call; nil where it has no answer.
func countOn(call engine.Call) func(context.Context, string) (int, error) {
	counter, ok := call.(engine.PromptCounter)
	if !ok {
		return nil
	}
	return func(ctx context.Context, text string) (int, error) {
		return counter.CountPrompt(ctx, engine.Row{Text: []byte(text)})
	}
}

// unanswered reports whether a server cannot count prompts.
func unanswered(err error) bool { return errors.Is(err, engine.ErrNoCounting) }
