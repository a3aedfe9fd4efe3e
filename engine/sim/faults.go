package sim

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Faults are injected into generations and embeddings, each with the given probability.
// The fault of a request depends on Config.Seed, its prompt, and how many faults this
// prompt got before, not on the order of arrival. So a retry has the same chances as
// any other request, and a repeated run gets the same faults.
type Faults struct {
	Rate429         float64 `json:"rate_429"`         // answers 429 with Retry-After
	Rate500         float64 `json:"rate_500"`         // answers 500
	Rate503         float64 `json:"rate_503"`         // answers 503 with Retry-After
	Reset           float64 `json:"reset"`            // resets the connection
	Hang            float64 `json:"hang"`             // computes the answer and never sends it; keeps a slot of a LatencyProfile
	Truncate        float64 `json:"truncate"`         // closes the connection in the middle of the body
	Malformed       float64 `json:"malformed"`        // answers with a body that is not JSON
	Empty           float64 `json:"empty"`            // answers 200 without choices or embeddings
	SchemaViolation float64 `json:"schema_violation"` // answers with JSON that violates the request's schema

	// StartupDelay is how long the server answers 503 to all requests, like a
	// server that loads its model: from New or SetFaults, and each time that it
	// accepts connections again.
	StartupDelay Duration `json:"startup_delay"`

	// DieAfter is the time from New or SetFaults until the server dies: it
	// closes all connections and accepts no more. 0: never. SetFaults makes a
	// dead server accept connections again; only Go code can call it then.
	DieAfter Duration `json:"die_after"`

	// ReviveAfter is how long a dead server accepts no connections. Then it
	// accepts connections again at the same address, with an empty prefix
	// cache. 0: never.
	ReviveAfter Duration `json:"revive_after"`
}

// FaultKinds returns the kinds of faults that SetRate accepts.
func FaultKinds() []string {
	var kinds []string
	for _, r := range new(Faults).rates() {
		kinds = append(kinds, r.kind)
	}
	return kinds
}

// SetRate sets the probability of a kind of fault, such as "503" or "reset".
// The error lists the kinds.
func (f *Faults) SetRate(kind string, rate float64) error {
	for _, r := range f.rates() {
		if r.kind == kind {
			*r.rate = rate
			return nil
		}
	}
	return fmt.Errorf("there is no kind of fault %q: choose from %s", kind, strings.Join(FaultKinds(), ", "))
}

// Duration is a time.Duration that reads and writes JSON as "1m30s".
type Duration time.Duration

// MarshalText writes the duration.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads the duration.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

// faultKind is a kind of injected fault.
type faultKind uint8

const (
	faultNone faultKind = iota
	faultStatus
	faultReset
	faultHang
	faultTruncate
	faultMalformed
	faultViolate
	faultEmpty
)

// faultWords has the names of the kinds of faults in the request log and in metrics.
var faultWords = [...]string{"", "status", "reset", "hang", "truncate", "malformed", "schema_violation", "empty"}

// chosenFault is the fault that a request gets, with the HTTP status for faultStatus.
type chosenFault struct {
	fault  faultKind
	status int
}

// faultRate is the rate of a kind of fault.
type faultRate struct {
	kind string
	rate *float64
	chosenFault
}

// rates returns all kinds of faults with pointers to their rates, in a fixed order.
func (f *Faults) rates() [9]faultRate {
	return [9]faultRate{
		{"429", &f.Rate429, chosenFault{faultStatus, 429}},
		{"500", &f.Rate500, chosenFault{faultStatus, 500}},
		{"503", &f.Rate503, chosenFault{faultStatus, 503}},
		{"reset", &f.Reset, chosenFault{fault: faultReset}},
		{"hang", &f.Hang, chosenFault{fault: faultHang}},
		{"truncate", &f.Truncate, chosenFault{fault: faultTruncate}},
		{"malformed", &f.Malformed, chosenFault{fault: faultMalformed}},
		{"schema_violation", &f.SchemaViolation, chosenFault{fault: faultViolate}},
		{"empty", &f.Empty, chosenFault{fault: faultEmpty}},
	}
}

// Validate returns an error that names the first invalid setting.
func (f Faults) Validate() error {
	sum := 0.0
	for _, r := range f.rates() {
		if !(*r.rate >= 0 && *r.rate <= 1) {
			return fmt.Errorf("the rate of %s is %v: it must be between 0 and 1", r.kind, *r.rate)
		}
		sum += *r.rate
	}
	switch {
	case sum > 1+1e-9:
		return fmt.Errorf("the rates of faults add up to %v: they must add up to at most 1, because a request gets at most one fault", sum)
	case f.StartupDelay < 0:
		return errors.New("startup_delay cannot be negative")
	case f.DieAfter < 0 || f.ReviveAfter < 0:
		return errors.New("die_after and revive_after cannot be negative")
	case f.ReviveAfter > 0 && f.DieAfter == 0:
		return errors.New("revive_after needs die_after: set both")
	}
	return nil
}

// maxHits is the largest number of prompts for which faults are counted. A prompt is
// removed when a repetition gets no fault, so most other entries are prompts that
// clients no longer send. If there are too many prompts, any one is removed; if it
// comes again, it may get other faults than in another run.
const maxHits = 1 << 16

// faultInjector decides which requests get a fault.
type faultInjector struct {
	mu          sync.Mutex
	given       Faults
	hasRates    bool // at least one rate in given is not zero
	ready       time.Time
	faultCounts map[uint64]int // number of faults since the prompt was last answered without a fault, by hash of the prompt
	seed        splitMix64
}

func (p *faultInjector) set(f Faults) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.given = f
	p.hasRates = false
	for _, r := range f.rates() {
		p.hasRates = p.hasRates || *r.rate > 0
	}
	p.ready = time.Now().Add(time.Duration(f.StartupDelay))
}

// restartStartupDelay starts the StartupDelay again: the server answers 503 until it is over.
func (p *faultInjector) restartStartupDelay() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ready = time.Now().Add(time.Duration(p.given.StartupDelay))
}

func (p *faultInjector) get() Faults {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.given
}

// startupRemaining returns how long the server will still answer 503 because of StartupDelay.
func (p *faultInjector) startupRemaining() time.Duration {
	p.mu.Lock()
	ready := p.ready
	p.mu.Unlock()
	return time.Until(ready)
}

// chooseFault returns the fault of a request. Directives in the prompt have priority over
// the rates.
func (p *faultInjector) chooseFault(prompt uint64, d *directives) chosenFault {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d.fault == faultNone && !p.hasRates {
		return chosenFault{}
	}
	hits := p.faultCounts[prompt]
	chosen := chosenFault{}
	switch {
	case d.fault != faultNone && d.times == 0:
		return chosenFault{d.fault, d.status}
	case d.fault != faultNone && hits < d.times:
		chosen = chosenFault{d.fault, d.status}
	default:
		r := p.seed ^ splitMix64(prompt) ^ splitMix64(uint64(hits)*0x9e3779b97f4a7c15)
		r = r.fork(3)
		at := r.uniform()
		for _, r := range p.given.rates() {
			if at -= *r.rate; at < 0 {
				chosen = r.chosenFault
				break
			}
		}
	}
	if chosen.fault == faultNone {
		if d.fault == faultNone {
			delete(p.faultCounts, prompt)
		}
		return chosen
	}
	if len(p.faultCounts) >= maxHits {
		for other := range p.faultCounts {
			delete(p.faultCounts, other)
			break
		}
	}
	if p.faultCounts == nil {
		p.faultCounts = map[uint64]int{}
	}
	p.faultCounts[prompt] = hits + 1
	return chosen
}
