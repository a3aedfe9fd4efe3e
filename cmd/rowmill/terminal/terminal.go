// Package terminal is the program's connection to its user: the three streams, whether
// a person watches, and how progress, figures and times are printed. It does not know
// the service.
package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// defaultWidth is used if a terminal does not report its width.
const defaultWidth = 80

// IO holds the streams of a command: data goes to Out, messages for people to Err.
type IO struct {
	In      io.Reader
	Out     io.Writer
	Err     io.Writer
	Environ []string // NAME=value

	// Live says that a line on Err can be rewritten: Err is a terminal, not a dumb one,
	// not in CI. Colour says that Err may also have colours.
	Live   bool
	Colour bool
	Quiet  bool       // print only data and errors
	Width  func() int // columns of Err

	Clock func() time.Time // nil: the clock of the machine
}

// Standard returns the IO of the process.
func Standard() *IO {
	t := &IO{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Environ: os.Environ()}
	fd := int(os.Stderr.Fd())
	t.Width = func() int {
		if width, _, err := term.GetSize(fd); err == nil && width > 0 {
			return width
		}
		return defaultWidth
	}
	t.Live = term.IsTerminal(fd) && t.Getenv("TERM") != "dumb" && t.Getenv("CI") == ""
	t.Colour = t.Live && t.Getenv("NO_COLOR") == ""
	return t
}

// Getenv returns a variable; empty if it is not set.
func (t *IO) Getenv(name string) string {
	for i := len(t.Environ) - 1; i >= 0; i-- {
		if value, found := strings.CutPrefix(t.Environ[i], name+"="); found {
			return value
		}
	}
	return ""
}

// Open opens a file, or standard input for -.
func (t *IO) Open(name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(t.In), nil
	}
	return os.Open(name)
}

// Now returns the time from which ages and speeds are computed.
func (t *IO) Now() time.Time {
	if t.Clock == nil {
		return time.Now()
	}
	return t.Clock()
}

// Say writes one line for people to Err, unless Quiet is set.
func (t *IO) Say(format string, args ...any) {
	if !t.Quiet {
		fmt.Fprintf(t.Err, format+"\n", args...)
	}
}
