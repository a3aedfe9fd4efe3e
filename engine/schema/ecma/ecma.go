// Package ecma owns regular expressions of ECMA-262 with the flag u, as JSON Schema
// names them: their syntax, and whether a text holds a match. Patterns and texts come
// from clients and models that may want to block the node. So parser and matcher limit
// their work. The limits are numbers of steps and not times, so the results are the same
// on every machine. The package knows nothing of JSON Schema.
//
// Go's regexp runs a pattern that it can run with the same meaning: its work grows with
// the length of the text alone. The matcher of this package runs the other patterns, by
// backtracking: patterns with lookahead, lookbehind or back references, and patterns
// that repeat something more than 1000 times.
//
// With the flag u, ECMA-262 refuses some escapes and characters, such as \_ and a lone
// brace. Schemas in use have them, so Compile accepts them as ECMA-262 does without the
// flag. Compile still refuses two things: an escaped letter without a meaning in
// ECMA-262 (\A and \Z have a meaning in other dialects), and octal numbers.
package ecma

import (
	"errors"
	"fmt"
	"regexp"
)

const (
	// maxRepeat is the largest count of a repetition that Go's regexp accepts. For
	// nested repetitions Go multiplies the counts.
	maxRepeat = 1000
	// linearShare converts the work of Go's regexp to steps. A match costs
	// (instructions of the program × bytes of the text) / linearShare steps. Go's
	// regexp visits each instruction at most once per byte, and in most programs only a
	// few instructions.
	linearShare = 4
	// MaxPlaces limits the stack of the matcher: the number of places in a text to
	// which it may go back. Each takes 16 bytes. A pattern that repeats a group needs
	// one place per pass, or about four if it has back references to the group.
	MaxPlaces = 1 << 20
)

// Errors of a match that was stopped before its result was known.
var (
	errSteps  = errors.New("the match needs more steps than allowed")
	ErrPlaces = errors.New("the match needs more places to go back to than MaxPlaces")
)

// A Pattern is a compiled regular expression. It is safe for concurrent use.
type Pattern struct {
	text         string         // the pattern as it was written
	size         int            // the result of Size
	linear       *regexp.Regexp // Go's regexp that runs the pattern; nil if program runs it
	instructions int            // number of instructions in linear
	program      *program       // runs the pattern by backtracking; nil if linear runs it
}

// Compile compiles a pattern. It returns an error if the pattern is invalid or if its
// program has more than maxSteps steps. The text of an error is a plain sentence that
// quotes the wrong part of the pattern.
func Compile(text string, maxSteps int) (*Pattern, error) {
	p := parser{text: []rune(text), most: maxSteps}
	root, err := p.parse()
	if err != nil {
		return nil, err
	}
	made := &Pattern{text: text}
	instructions, size, repeat := root.measure()
	if p.backtracks || repeat > maxRepeat {
		if made.size = max(root.programSize(), p.size); made.size <= maxSteps {
			made.program = newProgram(root, p.groups, p.wanted)
			return made, nil
		}
	} else if made.size = max(size, p.size); made.size <= maxSteps {
		made.instructions = instructions
		made.linear, err = regexp.Compile(root.goSyntax())
		if err != nil {
			return nil, errors.New("the pattern is too large")
		}
		return made, nil
	}
	return nil, tooLargeError(maxSteps)
}

// tooLargeError returns the error for a pattern with more than most steps.
func tooLargeError(most int) error {
	return fmt.Errorf("the pattern has more than %d steps, where x{0,1000} has 1000; repeat less", most)
}

// Size returns the number of steps of the program, or the number of character ranges in
// the pattern if it is larger. The cost of Compile grows with Size.
func (p *Pattern) Size() int { return p.size }

// String returns the pattern as it was written.
func (p *Pattern) String() string { return p.text }

// Match reports whether text contains a match. stepsLeft is the number of steps that Match
// may use; Match subtracts the steps that it has used. It returns errSteps if the steps do
// not suffice, or ErrPlaces.
func (p *Pattern) Match(text string, stepsLeft *int) (bool, error) {
	if p.linear == nil {
		return p.program.match(text, stepsLeft)
	}
	if *stepsLeft -= 1 + (len(text)+1)*p.instructions/linearShare; *stepsLeft < 0 {
		return false, errSteps
	}
	return p.linear.MatchString(text), nil
}
