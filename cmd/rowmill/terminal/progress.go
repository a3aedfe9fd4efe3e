package terminal

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rowmill/rowmill/internal/textfmt"
)

const (
	// rateWindow is the time over which speed is measured. It is longer than the few
	// seconds between two commits, because rows finish in groups.
	rateWindow = 30 * time.Second
	// plainEvery and plainStep say when a log gets another line.
	plainEvery = 10 * time.Second
	plainStep  = 0.05
	// widestBar limits the bar on wide terminals.
	widestBar = 30
)

// Snapshot is the progress at one time.
type Snapshot struct {
	Now    time.Time
	Phase  string // one word, such as running
	Note   string // the reason for waiting; shown while Total is unknown
	Unit   string // unit of Done and Total, such as rows
	Done   int64
	Total  int64 // -1 while unknown
	Tokens int64 // shown as a speed; 0: not shown
	Failed int64 // shown if not 0
	Size   bool  // Done and Total are bytes
}

// Progress shows snapshots: if Err is a terminal, as one line that is rewritten,
// otherwise as a line every 10 s or 5 %. It is for one goroutine.
type Progress struct {
	term    *IO
	samples []Snapshot // of the last rateWindow, oldest first
	shown   Snapshot   // the last snapshot that was written as a plain line
	plain   bool       // a plain line was written
	drawn   bool       // a live line is on the screen
}

// NewProgress makes a Progress. It shows nothing yet.
func NewProgress(term *IO) *Progress { return &Progress{term: term} }

// Update shows s.
func (p *Progress) Update(s Snapshot) {
	if len(p.samples) > 0 && p.samples[0].Phase != s.Phase {
		p.samples = p.samples[:0] // the time before this phase must not count for the speed
	}
	p.samples = append(p.samples, s)
	for len(p.samples) > 2 && s.Now.Sub(p.samples[1].Now) >= rateWindow {
		p.samples = p.samples[1:]
	}
	if p.term.Quiet {
		return
	}
	if p.term.Live {
		fmt.Fprint(p.term.Err, "\r\x1b[K"+render(s, p.samples[0], p.term.Width()-1, p.term.Colour))
		p.drawn = true
		return
	}
	if p.due(s) {
		fmt.Fprintln(p.term.Err, render(s, p.samples[0], 0, false))
		p.shown, p.plain = s, true
	}
}

// due reports whether a log needs a line for s.
func (p *Progress) due(s Snapshot) bool {
	switch {
	case !p.plain, s.Phase != p.shown.Phase, s.Now.Sub(p.shown.Now) >= plainEvery:
		return true
	case s.Total > 0:
		step := float64(s.Done-p.shown.Done) / float64(s.Total)
		return step >= plainStep || s.Done == s.Total && s.Done != p.shown.Done
	}
	return false
}

// Pause removes the live line, so that other text can be written.
func (p *Progress) Pause() {
	if p.drawn {
		fmt.Fprint(p.term.Err, "\r\x1b[K")
		p.drawn = false
	}
}

// render writes one line about s. since is an earlier snapshot of the same phase, for
// the speed. width 0 means any length and no bar.
func render(s, since Snapshot, width int, colour bool) string {
	if s.Total < 0 && s.Done == 0 {
		return clip(strings.TrimSpace(s.Phase+"  "+s.Note), width)
	}
	number := Count
	if s.Size {
		number = textfmt.Size
	}
	unit := strings.TrimSuffix(" "+s.Unit, " ")
	fields := []string{number(s.Done) + unit}
	if s.Total >= 0 {
		fields = []string{percent(s), number(s.Done) + "/" + number(s.Total) + unit}
	}
	seconds := s.Now.Sub(since.Now).Seconds()
	if speed := float64(s.Done-since.Done) / seconds; seconds > 0 && speed > 0 {
		if s.Size {
			fields = append(fields, textfmt.Size(int64(speed))+"/s")
		} else {
			fields = append(fields, short(speed)+unit+"/s")
		}
		if tokens := float64(s.Tokens-since.Tokens) / seconds; tokens > 0 {
			fields = append(fields, short(tokens)+" tok/s")
		}
		if s.Total > s.Done {
			left := float64(s.Total-s.Done) / speed
			fields = append(fields, Span(time.Duration(left*float64(time.Second)))+" left")
		}
	}
	if s.Failed > 0 {
		fields = append(fields, Count(s.Failed)+" failed")
	}
	text := strings.Join(fields, "  ")
	if room := width - len(s.Phase) - 4 - utf8.RuneCountInString(text); s.Total > 0 && room >= 10 {
		return s.Phase + "  " + bar(s, min(room, widestBar), colour) + "  " + text
	}
	return clip(s.Phase+"  "+text, width)
}

func percent(s Snapshot) string {
	if s.Total == 0 {
		return "100%"
	}
	// Rounded down: 100 % means all.
	return fmt.Sprintf("%3d%%", int(100*float64(s.Done)/float64(s.Total)))
}

func bar(s Snapshot, width int, colour bool) string {
	inner := width - 2
	full := min(max(int(float64(inner)*float64(s.Done)/float64(s.Total)), 0), inner)
	body := strings.Repeat("=", full)
	if full < inner {
		body += ">" + strings.Repeat(" ", inner-full-1)
	}
	if colour {
		body = "\x1b[32m" + body + "\x1b[0m"
	}
	return "[" + body + "]"
}

// clip cuts text to width columns, so that it never wraps.
func clip(text string, width int) string {
	if width <= 0 || utf8.RuneCountInString(text) <= width {
		return text
	}
	runes := []rune(text)
	return string(runes[:max(width-1, 0)]) + "…"
}
