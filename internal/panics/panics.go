// Package panics turns a panic into an error. Nodes use it when they process data from
// outside, so that a panic fails one row, job or engine and not the node.
package panics

import (
	"fmt"
	"path"
	"runtime"
	"runtime/debug"
	"strings"
)

// A Panic is the error for a recovered panic.
type Panic struct {
	Reason any
	At     string // file and line of the panic
	Stack  []byte // stack of the goroutine that panicked
}

// Error returns the message without the stack.
func (p *Panic) Error() string { return fmt.Sprintf("panic at %s: %v", p.At, p.Reason) }

// Catch calls do. If do panics, Catch returns a *Panic.
func Catch(do func() error) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = &Panic{Reason: reason, At: panicSite(), Stack: debug.Stack()}
		}
	}()
	return do()
}

// panicSite returns the file and line of the panic that is being recovered: the first
// stack frame that is not in Go's runtime.
func panicSite() string {
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
