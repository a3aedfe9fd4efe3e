package fleet

import (
	"encoding/json"
	"os"
	"time"

	"github.com/rowmill/rowmill/engine"
)

// Values that are used until the node has measured them.
const (
	expectedLoad = 120.0  // seconds
	expectedWake = 10.0   // seconds
	expectedRate = 1000.0 // tokens per second, for each GPU
)

// facts has the measured values of a server. A file keeps them, because a stopped server
// cannot be asked.
type facts struct {
	Command   string               `json:"command"` // the facts are about this command
	Kind      string               `json:"kind,omitempty"`
	Simulated bool                 `json:"simulated,omitempty"`
	Models    []engine.ServedModel `json:"models,omitempty"`
	Load      float64              `json:"load_seconds"`
	Wake      float64              `json:"wake_seconds"`
	Rate      float64              `json:"tokens_per_second"`
}

// readFacts reads the facts of a server. Without a file for its command, it returns the
// expected values.
func readFacts(path string, set ServerConfig) facts {
	var f facts
	if text, err := os.ReadFile(path); err != nil || json.Unmarshal(text, &f) != nil || f.Command != set.Run || f.Load <= 0 || f.Wake <= 0 || f.Rate <= 0 {
		f = facts{Command: set.Run, Models: set.Served, Load: expectedLoad, Wake: expectedWake, Rate: expectedRate * max(1, float64(set.GPUs))}
	}
	return f
}

// saveFacts writes the facts of the server. After a failure, the next start of the node
// begins with the expected values.
func (s *server) saveFacts() {
	text, err := json.Marshal(s.facts)
	if err == nil {
		err = os.WriteFile(s.fleet.factsFile(s.set.Name), text, 0o600)
	}
	if err != nil {
		s.fleet.cfg.Logger.Warn("the facts of a server cannot be kept", "server", s.set.Name, "err", err)
	}
}

// learn takes over what a running server says about itself, and reports whether it is new.
func (f *facts) learn(info engine.ServerInfo) (changed bool) {
	if len(info.Models) == 0 || f.info().EqualIgnoringVersion(info) {
		return false
	}
	f.Kind, f.Simulated, f.Models = info.Kind, info.Simulated, info.Models
	return true
}

func (f *facts) info() engine.ServerInfo {
	return engine.ServerInfo{Kind: f.Kind, Simulated: f.Simulated, Models: f.Models}
}

// A pace measures the tokens per second of a server while it has rows.
type pace struct {
	at     time.Time // time of the last observation with rows; zero after one without rows
	tokens int64
	rate   float64 // mean of about the last paceTime
	span   time.Duration
}

const (
	// paceTime is about the time over which a pace is a mean.
	paceTime = time.Minute
	// leastSpan is the time with rows before a pace is used.
	leastSpan = 10 * time.Second
)

// observe adds the present number of rows, and the number of tokens so far. ok is false while
// too little is measured.
func (p *pace) observe(rows int, tokens int64, now time.Time) (rate float64, ok bool) {
	if rows == 0 {
		p.at = time.Time{}
		return p.rate, false
	}
	if took := now.Sub(p.at); !p.at.IsZero() && took > 0 && tokens >= p.tokens {
		p.span = min(p.span+took, paceTime)
		share := min(1, took.Seconds()/p.span.Seconds())
		p.rate += share * (float64(tokens-p.tokens)/took.Seconds() - p.rate)
	}
	p.at, p.tokens = now, tokens
	return p.rate, p.span >= leastSpan && p.rate > 0
}
