// Package terminal is the program's view of who reads it: the three streams,
// whether a person watches, and how progress, figures and times are written
// for them. It knows nothing of the service.
package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// defaultWidth is used where a terminal does not tell its width.
const defaultWidth = 80

// IO is where a command reads and writes: data goes to Out, everything said
// to a person to Err.
type IO struct {
	In      io.Reader
	Out     io.Writer
	Err     io.Writer
	Environ []string // NAME=value

	// Live says that Err can be rewritten: a terminal, not a dumb one, not in
	// CI. Colour adds that colours are welcome.
	Live   bool
	Colour bool
	Quiet  bool       // say nothing but data and errors
	Width  func() int // columns of Err

	Clock func() time.Time // nil: that of the machine
}

// Standard is the IO of the process.
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

// Getenv returns a variable, empty when it is not set.
func (t *IO) Getenv(name string) string {
	for i := len(t.Environ) - 1; i >= 0; i-- {
		if value, found := strings.CutPrefix(t.Environ[i], name+"="); found {
			return value
		}
	}
	return ""
}

// Now is the time that ages and speeds are reckoned from.
func (t *IO) Now() time.Time {
	if t.Clock == nil {
		return time.Now()
	}
	return t.Clock()
}

// Say writes one line to the person at Err, unless they want quiet.
func (t *IO) Say(format string, args ...any) {
	if !t.Quiet {
		fmt.Fprintf(t.Err, format+"\n", args...)
	}
}
