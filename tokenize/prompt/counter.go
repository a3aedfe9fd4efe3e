package prompt

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/rowmill/rowmill"
)

// Counter counts the tokens of the prompts of a job like the server that runs the job.
// It is safe for concurrent use.
type Counter struct {
	measure *TokenCounter
	known   bool // whether counts use the model's own vocabulary; otherwise they are calibrated
	learned *Calibration
	report  func(meanError float64)
	chats   bool // rows are chats, see NormalizeChat
}

// countRow returns our count of the tokens in the prompt of a row. For a chat it is a rough
// count, which the calibration corrects.
func (c *Counter) countRow(text string) int {
	if !c.chats {
		return c.measure.Count(text)
	}
	chat, err := parseChat(text)
	if err != nil {
		return c.measure.Count(text)
	}
	n := c.measure.Overhead()
	for _, m := range chat {
		content := m.content
		if !m.isText {
			content = string(m.raw)
		}
		n += messageTokens + c.measure.tokens.Count(content)
	}
	return n
}

// Count returns the number of tokens in the prompt of a row.
func (c *Counter) Count(text string) int {
	n := c.countRow(text)
	if c.known {
		return n
	}
	return c.learned.Estimate(n)
}

// CountUpperBound returns an upper limit of Count without counting.
func (c *Counter) CountUpperBound(text string) int {
	n := c.measure.CountUpperBound(text)
	if c.known {
		return n
	}
	return max(c.learned.Estimate(0), c.learned.Estimate(n)) // wrong reports of a server can give a line with a negative slope
}

// IsExact reports whether the server certainly counts as Count does.
func (c *Counter) IsExact(text string) bool { return c.known && c.measure.IsExact(text) }

// RecordUsage gives the calibration the count that the server reported for a row, and
// reports the new mean error.
func (c *Counter) RecordUsage(text string, used int64) {
	c.learned.AddSample(c.countRow(text), int(used))
	off, _ := c.learned.MeanError()
	c.report(off)
}

// Cut returns the longest prefix of a row's text with at most n bytes. Of a chat, it leaves out
// old messages first; the result is empty if a chat cannot be so short.
func (c *Counter) Cut(text string, n int) string {
	if c.chats {
		return cutChat(text, n)
	}
	return TruncateToBytes(text, n)
}

// TruncateToFit returns the longest prefix of text whose prompt has at most limit tokens. If our
// count is not exact, it calls ask for the server's count; ask is nil if the server
// cannot count. ok is false if even an empty text does not fit.
func (c *Counter) TruncateToFit(ctx context.Context, text string, limit int, ask func(context.Context, string) (int, error)) (cut string, ok bool, err error) {
	if len(text)+c.measure.Overhead() <= limit { // a token has at least one byte
		return text, true, nil
	}
	if ask != nil && !c.IsExact(text) {
		return c.truncateAsking(ctx, text, limit, ask)
	}
	if c.known {
		cut, _, ok = c.measure.TruncateToFit(text, limit)
		return cut, ok, nil
	}
	if n := c.Count(text); n > limit {
		text = c.Cut(text, int(float64(len(text))*float64(limit)/float64(n)))
	}
	return text, text != "" || !c.chats, nil
}

// truncateAsking cuts the text until the server's count is at most limit. Each cut removes
// the share of tokens that are too many, so that two or three calls of ask are enough.
func (c *Counter) truncateAsking(ctx context.Context, text string, limit int, ask func(context.Context, string) (int, error)) (string, bool, error) {
	for {
		n, err := ask(ctx, text)
		if err != nil || n <= limit {
			return text, true, err
		}
		if text == "" {
			return text, false, nil
		}
		text = c.Cut(text, min(len(text)-1, len(text)*limit/n))
	}
}

// TruncateToBytes returns the longest prefix of text with at most n bytes that ends between
// two characters.
func TruncateToBytes(text string, n int) string {
	for n = max(0, min(n, len(text))); n > 0 && n < len(text) && text[n]&0xC0 == 0x80; n-- {
	}
	return text[:n]
}

// byteEstimate is a Tokenizer that estimates counts from the number of bytes, for a
// vocabulary that is not known. The server's counts then calibrate the estimate.
type byteEstimate struct{}

// BytesPerToken is the assumed length of a token in bytes if the vocabulary is not
// known.
const BytesPerToken = 4

func (byteEstimate) Count(text string) int { return (len(text) + BytesPerToken - 1) / BytesPerToken }

func (byteEstimate) Truncate(text string, n int) string {
	return TruncateToBytes(text, n*BytesPerToken)
}

// CounterFactory makes the counters of a node's jobs. It keeps the calibration of a
// model after the job ends. It is safe for concurrent use.
type CounterFactory struct {
	find   func(rowmill.Model) (Tokenizer, string, error)
	report func(model string, meanError float64)
	log    *slog.Logger

	mu      sync.Mutex
	learned map[string]*Calibration // calibrations by model ID
	warned  map[string]bool
}

// NewCounterFactory returns counters that call find for the tokenizer of a model. A nil
// tokenizer means an estimate by bytes. A warning means that the counts are estimates,
// and gives the reason. report gets the mean error of recent counts, in tokens.
func NewCounterFactory(find func(rowmill.Model) (t Tokenizer, warning string, err error), report func(model string, meanError float64), log *slog.Logger) *CounterFactory {
	return &CounterFactory{find: find, report: report, log: log, learned: make(map[string]*Calibration), warned: make(map[string]bool)}
}

// NewCounter returns the counter for the rows of a job.
func (s *CounterFactory) NewCounter(spec *rowmill.Spec) (*Counter, error) {
	model := spec.Model
	template, err := FindTemplate(model.Template)
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", model.ID, err)
	}
	tokens, warning, err := s.find(model)
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", model.ID, err)
	}
	known, learned := countsExactly(tokens, warning, template) && !spec.Messages, model.ID
	if spec.Messages { // chats have their own calibration, because we count them in another way
		learned += " chats"
	}
	if tokens == nil {
		tokens = byteEstimate{}
	}
	return &Counter{
		measure: template.Measure(tokens, JobPrompt{System: spec.System, Extras: model.RequestExtras}),
		known:   known, learned: s.calibration(learned, warning), chats: spec.Messages,
		report: func(meanError float64) { s.report(model.ID, meanError) },
	}, nil
}

// countsExactly reports whether prompts are counted exactly as on the server: with the model's
// own vocabulary and a known template.
func countsExactly(tokens Tokenizer, warning string, t Template) bool {
	return tokens != nil && warning == "" && t.Name() != None
}

// CountQuality reports whether prompts of a model are counted exactly, and the mean
// error of recent counts in tokens. ok is false before the first report of a
// server.
func (s *CounterFactory) CountQuality(model rowmill.Model) (isExact bool, meanError float64, ok bool) {
	template, err := FindTemplate(model.Template)
	if err == nil {
		tokens, warning, findErr := s.find(model)
		isExact = findErr == nil && countsExactly(tokens, warning, template)
	}
	s.mu.Lock()
	calibration := s.learned[model.ID]
	s.mu.Unlock()
	if calibration != nil {
		meanError, ok = calibration.MeanError()
	}
	return isExact, meanError, ok
}

// calibration returns the calibration of a model, and makes it if necessary. It logs
// the warning once per model.
func (s *CounterFactory) calibration(model, warning string) *Calibration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.learned[model] == nil {
		s.learned[model] = new(Calibration)
	}
	if warning != "" && !s.warned[model] {
		s.warned[model] = true
		s.log.Warn("token counts are estimates", "model", model, "why", warning)
	}
	return s.learned[model]
}
