package terminal

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rowmill/rowmill/internal/textfmt"
)

const (
	// rateWindow is the time over which the speed is measured. It is longer than the
	// few seconds between two commits, because the rows of a commit are counted
	// together.
	rateWindow = 30 * time.Second
	// plainEvery and plainStep say when Progress prints another line if Err is not a
	// terminal: after this time, or after this share of the total.
	plainEvery = 10 * time.Second
	plainStep  = 0.05
	// widestBar limits the width of the progress bar on wide terminals, in columns.
	widestBar = 30
)

// ProgressSnapshot is the progress of an operation at one time.
type ProgressSnapshot struct {
	Now    time.Time
	Phase  string // name of the phase in one word, such as running
	Note   string // the reason for waiting; shown while Total is unknown
	Unit   string // unit of Done and Total, such as rows
	Done   int64
	Total  int64 // -1 while the total is unknown
	Tokens int64 // tokens so far, shown as a speed; not shown if 0
	Failed int64 // failed rows so far; not shown if 0
	Size   bool  // Done and Total are bytes
}

// Progress shows snapshots. If Err is a terminal, it rewrites one line; otherwise it
// prints a line every 10 s or 5 %. Only one goroutine may use it.
type Progress struct {
	term    *IO
	samples []ProgressSnapshot // the snapshots of the last rateWindow, oldest first
	shown   ProgressSnapshot   // the last snapshot that was written as a plain line
	plain   bool               // true after the first plain line was written
	drawn   bool               // true while a live line is on the screen
}

// NewProgress returns a Progress that shows nothing yet.
func NewProgress(term *IO) *Progress { return &Progress{term: term} }

// Update shows the snapshot s.
func (p *Progress) Update(s ProgressSnapshot) {
	if len(p.samples) > 0 && p.samples[0].Phase != s.Phase {
		p.samples = p.samples[:0] // the speed must not include an earlier phase
	}
	p.samples = append(p.samples, s)
	for len(p.samples) > 2 && s.Now.Sub(p.samples[1].Now) >= rateWindow {
		p.samples = p.samples[1:]
	}
	if p.term.Quiet {
		return
	}
	if p.term.Live {
		fmt.Fprint(p.term.Err, "\r\x1b[K"+renderLine(s, p.samples[0], p.term.Width()-1, p.term.Colour))
		p.drawn = true
		return
	}
	if p.needsLine(s) {
		fmt.Fprintln(p.term.Err, renderLine(s, p.samples[0], 0, false))
		p.shown, p.plain = s, true
	}
}

// needsLine reports whether s needs a new line, if Err is not a terminal.
func (p *Progress) needsLine(s ProgressSnapshot) bool {
	switch {
	case !p.plain, s.Phase != p.shown.Phase, s.Now.Sub(p.shown.Now) >= plainEvery:
		return true
	case s.Total > 0:
		step := float64(s.Done-p.shown.Done) / float64(s.Total)
		return step >= plainStep || s.Done == s.Total && s.Done != p.shown.Done
	}
	return false
}

// Clear removes the progress line from the terminal, so that other text can be written.
func (p *Progress) Clear() {
	if p.drawn {
		fmt.Fprint(p.term.Err, "\r\x1b[K")
		p.drawn = false
	}
}

// renderLine returns one line about the snapshot s. since is an earlier snapshot of the
// same phase, from which the speed is computed. width 0 means any length and no bar.
func renderLine(s, earlier ProgressSnapshot, width int, colour bool) string {
	if s.Total < 0 && s.Done == 0 {
		return clip(strings.TrimSpace(s.Phase+"  "+s.Note), width)
	}
	number := FormatCount
	if s.Size {
		number = textfmt.FormatSize
	}
	unit := strings.TrimSuffix(" "+s.Unit, " ")
	fields := []string{number(s.Done) + unit}
	if s.Total >= 0 {
		fields = []string{formatPercent(s), number(s.Done) + "/" + number(s.Total) + unit}
	}
	seconds := s.Now.Sub(earlier.Now).Seconds()
	if speed := float64(s.Done-earlier.Done) / seconds; seconds > 0 && speed > 0 {
		if s.Size {
			fields = append(fields, textfmt.FormatSize(int64(speed))+"/s")
		} else {
			fields = append(fields, formatShort(speed)+unit+"/s")
		}
		if tokens := float64(s.Tokens-earlier.Tokens) / seconds; tokens > 0 {
			fields = append(fields, formatShort(tokens)+" tok/s")
		}
		if s.Total > s.Done {
			left := float64(s.Total-s.Done) / speed
			fields = append(fields, FormatDuration(time.Duration(left*float64(time.Second)))+" left")
		}
	}
	if s.Failed > 0 {
		fields = append(fields, FormatCount(s.Failed)+" failed")
	}
	text := strings.Join(fields, "  ")
	if room := width - len(s.Phase) - 4 - utf8.RuneCountInString(text); s.Total > 0 && room >= 10 {
		return s.Phase + "  " + renderBar(s, min(room, widestBar), colour) + "  " + text
	}
	return clip(s.Phase+"  "+text, width)
}

func formatPercent(s ProgressSnapshot) string {
	if s.Total == 0 {
		return "100%"
	}
	// Round down, so that 100 % appears only when all is done.
	return fmt.Sprintf("%3d%%", int(100*float64(s.Done)/float64(s.Total)))
}

func renderBar(s ProgressSnapshot, width int, colour bool) string {
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
	if width <= 0 || displayWidth(text) <= width {
		return text
	}
	room := width - 1
	for i, r := range text {
		if room -= 1 + extraWidth(r); room < 0 {
			return text[:i] + "…"
		}
	}
	return text
}
