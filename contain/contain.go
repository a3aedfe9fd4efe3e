// Package contain owns what becomes of a panic where a node works on what comes
// from others: an error of the row, job or engine whose turn it was. It knows
// none of them.
package contain

import (
	"fmt"
	"path"
	"runtime"
	"runtime/debug"
	"strings"
)

// A Panic is what was recovered.
type Panic struct {
	Reason any
	At     string // file and line
	Stack  []byte // of the goroutine that panicked
}

// Error leaves the stack out.
func (p *Panic) Error() string { return fmt.Sprintf("panic at %s: %v", p.At, p.Reason) }

// Run calls do. A panic in it is a *Panic.
func Run(do func() error) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = &Panic{Reason: reason, At: place(), Stack: debug.Stack()}
		}
	}()
	return do()
}

// place is where the panic began that is being recovered: below the runtime's own
// frames.
func place() string {
	callers := make([]uintptr, 64)
	frames := runtime.CallersFrames(callers[:runtime.Callers(0, callers)])
	for panicked := false; ; {
		f, more := frames.Next()
		switch own := strings.HasPrefix(f.Function, "runtime."); {
		case f.Function == "runtime.gopanic":
			panicked = true
		case panicked && !own:
			return fmt.Sprintf("%s:%d", path.Join(path.Base(path.Dir(f.File)), path.Base(f.File)), f.Line)
		}
		if !more {
			return "an unknown place"
		}
	}
}
