package sim

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine/sim/batching"
)

// The defaults of Config and Profile.
const (
	defaultSlots   = 256      // vLLM's max_num_seqs on most GPUs
	defaultMaxBody = 64 << 20 // enough for 8 rows of the largest allowed size, 8 MiB each

	// defaultContext is the context of a model without one in its catalog entry.
	defaultContext = 32768
)

// Config sets the models and the behaviour of a simulated server.
type Config struct {
	// Models are served under their ids and engine names. At least one.
	Models []rowmill.Model

	// Profile is how fast the server is and how long its answers are. Default:
	// DefaultProfile.
	Profile LatencyProfile

	// GPU, if not nil, replaces the latencies, slots and queue limit of Profile:
	// answers take the time of a model on a GPU with continuous batching. If GPU.Seed
	// is 0, Seed is used.
	GPU *batching.Config

	// Seed changes all answers and all faults. Default 0.
	Seed int64

	// MaxContext, in tokens, replaces the context length of every model. 0 keeps
	// the models' own context lengths.
	MaxContext int

	// MaxBody is the largest request body in bytes; a larger body gets HTTP 413.
	// Default 64 MiB.
	MaxBody int

	// Faults are injected from the start; SetFaults changes them.
	Faults Faults

	// RequestLog receives one line of JSON for each computed row. nil means no request
	// log.
	RequestLog io.Writer

	// Logger receives messages for operators. Default: nothing is
	// logged.
	Logger *slog.Logger
}

// LatencyProfile is a fixed latency profile and the usual length of answers.
type LatencyProfile struct {
	TimeToFirstToken time.Duration // from taking a slot to the first token, or to an embedding
	TimePerToken     time.Duration // for each further token

	// Slots is how many requests run at once. Default 256.
	Slots int

	// QueueLimit is how many requests may wait for a slot. Further requests get HTTP
	// 503 with Retry-After. 0, the default, lets any number of requests wait, as vLLM
	// does by default.
	QueueLimit int

	// AnswerTokens is the median length of free text, in tokens. Default 60, about one
	// paragraph.
	AnswerTokens int

	// ReasoningTokens is the median length of reasoning, default 40 tokens.
	ReasoningTokens int
}

// DefaultProfile returns a profile for demonstrations. A demonstration ends within
// seconds and is slow enough to watch: 20 ms to the first token, 0.2 ms for each further
// token.
func DefaultProfile() LatencyProfile {
	return LatencyProfile{TimeToFirstToken: 20 * time.Millisecond, TimePerToken: 200 * time.Microsecond}.WithDefaults()
}

// InstantProfile returns a profile without any delay, for tests and for measurements without
// the time of the engine.
func InstantProfile() LatencyProfile { return LatencyProfile{}.WithDefaults() }

// WithDefaults returns p with a default in every unset field, except the latencies: 0
// means none.
func (p LatencyProfile) WithDefaults() LatencyProfile {
	if p.Slots == 0 {
		p.Slots = defaultSlots
	}
	if p.AnswerTokens == 0 {
		p.AnswerTokens = 60
	}
	if p.ReasoningTokens == 0 {
		p.ReasoningTokens = 40
	}
	return p
}

// Validate returns an error that names the first invalid setting.
func (p LatencyProfile) Validate() error {
	switch {
	case p.TimeToFirstToken < 0:
		return fmt.Errorf("setting TimeToFirstToken is %v: it cannot be negative", p.TimeToFirstToken)
	case p.TimePerToken < 0:
		return fmt.Errorf("setting TimePerToken is %v: it cannot be negative", p.TimePerToken)
	case p.Slots < 1:
		return fmt.Errorf("setting Slots is %d: at least 1 is needed", p.Slots)
	case p.QueueLimit < 0:
		return fmt.Errorf("setting QueueLimit is %d: use 0 for no limit", p.QueueLimit)
	case p.AnswerTokens < 1:
		return fmt.Errorf("setting AnswerTokens is %d: at least 1 is needed", p.AnswerTokens)
	case p.ReasoningTokens < 1:
		return fmt.Errorf("setting ReasoningTokens is %d: at least 1 is needed", p.ReasoningTokens)
	}
	return nil
}

// WithDefaults returns c with a default in every unset field.
func (c Config) WithDefaults() Config {
	if c.Profile == (LatencyProfile{}) {
		c.Profile = DefaultProfile()
	}
	c.Profile = c.Profile.WithDefaults()
	if c.MaxBody == 0 {
		c.MaxBody = defaultMaxBody
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate returns an error that names the first invalid setting.
func (c Config) Validate() error {
	if len(c.Models) == 0 {
		return errors.New("setting Models is empty: name at least one model to serve")
	}
	for i, m := range c.Models {
		switch {
		case m.ID == "":
			return fmt.Errorf("setting Models[%d] has no id", i)
		case m.Kind == rowmill.KindEmbedding && m.Dimension < 1:
			return fmt.Errorf("model %s: an embedding model needs a dimension", m.ID)
		case m.Kind != rowmill.KindEmbedding && m.Kind != rowmill.KindGeneration && m.Kind != rowmill.KindReasoning:
			return fmt.Errorf("model %s: unknown kind %q", m.ID, m.Kind)
		case m.ContextLength < 0:
			return fmt.Errorf("model %s: context length %d is negative", m.ID, m.ContextLength)
		}
	}
	if c.MaxContext < 0 || c.MaxContext > 0 && c.MaxContext < 16 {
		return fmt.Errorf("setting MaxContext is %d: use 0 for the models' own context lengths, or at least 16 tokens", c.MaxContext)
	}
	if c.MaxBody < 1 {
		return fmt.Errorf("setting MaxBody is %d: at least 1 byte is needed", c.MaxBody)
	}
	if err := c.Profile.Validate(); err != nil {
		return fmt.Errorf("setting Profile: %w", err)
	}
	if err := c.Faults.Validate(); err != nil {
		return fmt.Errorf("setting Faults: %w", err)
	}
	return nil
}
