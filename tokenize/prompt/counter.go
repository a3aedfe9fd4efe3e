package prompt

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/rowmill/rowmill"
)

// A Counter counts the tokens of a job's prompts as its server will. It is safe
// for concurrent use.
type Counter struct {
	measure *Measure
	known   bool // by the model's own vocabulary; otherwise calibrated
	learned *Calibration
	report  func(meanError float64)
}

// Count is how many tokens the prompt of a row has.
func (c *Counter) Count(text string) int {
	n := c.measure.Count(text)
	if c.known {
		return n
	}
	n, _, _ = c.learned.Estimate(n)
	return n
}

// AtMost is a bound on what Count returns, which takes no counting.
func (c *Counter) AtMost(text string) int {
	n := c.measure.AtMost(text)
	if c.known {
		return n
	}
	least, _, _ := c.learned.Estimate(0) // a line through odd reports may fall
	most, _, _ := c.learned.Estimate(n)
	return max(least, most)
}

// Exact reports whether the server is sure to count as Count does.
func (c *Counter) Exact(text string) bool { return c.known && c.measure.Exact(text) }

// Observe compares with what a server says it counted.
func (c *Counter) Observe(text string, used int64) {
	c.learned.Observe(c.measure.Count(text), int(used))
	c.report(c.learned.Report().MeanError)
}

// Fit returns the longest beginning of text whose prompt has at most limit
// tokens. Where our count is not that of the server, ask does the counting;
// nil where it cannot. ok is false when not even an empty text fits.
func (c *Counter) Fit(ctx context.Context, text string, limit int, ask func(context.Context, string) (int, error)) (cut string, ok bool, err error) {
	if len(text)+c.measure.Overhead() <= limit { // a token has at least one byte
		return text, true, nil
	}
	if ask != nil && !c.Exact(text) {
		return fitAsking(ctx, text, limit, ask)
	}
	if c.known {
		cut, _, ok = c.measure.Fit(text, limit)
		return cut, ok, nil
	}
	if n := c.Count(text); n > limit {
		text = Beginning(text, int(float64(len(text))*float64(limit)/float64(n)))
	}
	return text, true, nil
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
		text = Beginning(text, min(len(text)-1, len(text)*limit/n))
	}
}

// Beginning returns at most n bytes of text, cut between two characters.
func Beginning(text string, n int) string {
	for n = max(0, min(n, len(text))); n > 0 && n < len(text) && text[n]&0xC0 == 0x80; n-- {
	}
	return text[:n]
}

// bytesOnly stands in where no vocabulary is known, until the server's counts
// say otherwise.
type bytesOnly struct{}

// BytesPerToken is how long a token is taken to be where nothing better is known.
const BytesPerToken = 4

func (bytesOnly) Count(text string) int { return (len(text) + BytesPerToken - 1) / BytesPerToken }

func (bytesOnly) Truncate(text string, n int) string { return Beginning(text, n*BytesPerToken) }

// Counters makes the counters of a node's jobs. What is learned about a model
// outlives the job it was learned from. It is safe for concurrent use.
type Counters struct {
	find   func(rowmill.Model) (Tokenizer, string, error)
	report func(model string, meanError float64)
	log    *slog.Logger

	mu      sync.Mutex
	learned map[string]*Calibration // by model
	warned  map[string]bool
}

// NewCounters returns counters that count by what find returns for a model: no
// tokenizer means by its bytes, a warning that the counts are estimates. report
// hears by how many tokens, on average of late, a count was not the server's.
func NewCounters(find func(rowmill.Model) (t Tokenizer, warning string, err error), report func(model string, meanError float64), log *slog.Logger) *Counters {
	return &Counters{find: find, report: report, log: log, learned: make(map[string]*Calibration), warned: make(map[string]bool)}
}

// Counter returns what counts the prompts of jobs with this model and system
// prompt.
func (s *Counters) Counter(model rowmill.Model, system string) (*Counter, error) {
	template, err := Find(model.Template)
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", model.ID, err)
	}
	tokens, warning, err := s.find(model)
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", model.ID, err)
	}
	known := exact(tokens, warning, template)
	if tokens == nil {
		tokens = bytesOnly{}
	}
	return &Counter{
		measure: template.Measure(tokens, Job{System: system, Extras: model.RequestExtras}),
		known:   known, learned: s.calibration(model.ID, warning),
		report: func(meanError float64) { s.report(model.ID, meanError) },
	}, nil
}

// exact reports whether a prompt is counted as its server does: by the model's own
// vocabulary, in a template that is known.
func exact(tokens Tokenizer, warning string, t Template) bool {
	return tokens != nil && warning == "" && t.Name() != None
}

// Quality says whether prompts of a model are counted exactly, and what was learned
// of it from servers.
func (s *Counters) Quality(model rowmill.Model) (isExact bool, learned Report) {
	template, err := Find(model.Template)
	if err == nil {
		tokens, warning, findErr := s.find(model)
		isExact = findErr == nil && exact(tokens, warning, template)
	}
	s.mu.Lock()
	calibration := s.learned[model.ID]
	s.mu.Unlock()
	if calibration != nil {
		learned = calibration.Report()
	}
	return isExact, learned
}

// calibration returns what is learned about a model, and logs its warning once.
func (s *Counters) calibration(model, warning string) *Calibration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.learned[model] == nil {
		s.learned[model] = new(Calibration)
	}
	if warning != "" && !s.warned[model] {
		s.warned[model] = true
		s.log.Warn("tokens are estimated", "model", model, "why", warning)
	}
	return s.learned[model]
}
