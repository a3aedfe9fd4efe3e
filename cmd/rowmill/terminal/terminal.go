// Package terminal connects the program to its user: it has the three streams, knows
// whether a person watches, and prints progress, numbers and times. It does not know
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

// defaultWidth is the number of columns that is assumed if a terminal does not report
// its width.
const defaultWidth = 80

// IO holds the streams of a command: data goes to Out, messages for people to Err.
type IO struct {
	In      io.Reader
	Out     io.Writer
	Err     io.Writer
	Environ []string // variables of the environment, NAME=value

	// Live reports whether a line on Err can be rewritten: Err is a terminal that is
	// not dumb, and the program does not run in CI. Colour reports whether Err may also
	// have colours.
	Live   bool
	Colour bool
	Quiet  bool       // print only data and errors
	Width  func() int // returns the number of columns of Err

	OutWidth  int  // number of columns of Out; 0 if Out is not a terminal
	OutColour bool // Out may have colours

	Clock func() time.Time // returns the time; nil means the clock of the machine
}

// StandardIO returns the IO of the process.
func StandardIO() *IO {
	t := &IO{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Environ: os.Environ()}
	fd, out := int(os.Stderr.Fd()), int(os.Stdout.Fd())
	t.Width = func() int { return columnsOf(fd) }
	if term.IsTerminal(out) {
		t.OutWidth = columnsOf(out)
		t.OutColour = t.Getenv("TERM") != "dumb" && t.Getenv("NO_COLOR") == ""
	}
	t.Live = term.IsTerminal(fd) && t.Getenv("TERM") != "dumb" && t.Getenv("CI") == ""
	t.Colour = t.Live && t.Getenv("NO_COLOR") == ""
	return t
}

// columnsOf returns the number of columns of a terminal.
func columnsOf(fd int) int {
	if width, _, err := term.GetSize(fd); err == nil && width > 0 {
		return width
	}
	return defaultWidth
}

// Getenv returns the value of an environment variable; empty if it is not set.
func (t *IO) Getenv(name string) string {
	for i := len(t.Environ) - 1; i >= 0; i-- {
		if value, found := strings.CutPrefix(t.Environ[i], name+"="); found {
			return value
		}
	}
	return ""
}

// Open opens a file for reading. For the name -, it returns standard input.
func (t *IO) Open(name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(t.In), nil
	}
	return os.Open(name)
}

// Now returns the current time. Ages and speeds are computed from this time.
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
