package schema

import (
	"context"
	"errors"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	// maxSteps limits how many times the library compares a subschema with a value for
	// one answer. An answer of 10,000 values under a schema of 50 branches needs about
	// maxSteps steps, which take about a second. Forty levels of "allOf" that each
	// refer to the next level twice would need a trillion steps.
	maxSteps = 1 << 19
	// checkEvery is the number of steps between two checks whether the context has
	// ended.
	checkEvery = 1 << 10
)

// errTooManySteps and errStopped are panic values. Only a panic can stop a validation
// of the library.
var (
	errTooManySteps = errors.New("the answer takes too many steps")
	errStopped      = errors.New("the context has ended")
)

// stepLimiter counts the steps of the current validation. It is a keyword that every
// subschema of the compiled schema has, so the library calls it in every step.
type stepLimiter struct {
	ctx   context.Context
	limit int // maximum steps per answer: maxSteps, lower in tests
	taken int // steps of the current validation so far
}

// vocabulary returns a vocabulary for the library whose only keyword is s.
func (s *stepLimiter) vocabulary() *jsonschema.Vocabulary {
	return &jsonschema.Vocabulary{
		URL:     address + ":steps",
		Compile: func(*jsonschema.CompilerContext, map[string]any) (jsonschema.SchemaExt, error) { return s, nil },
	}
}

// Validate counts one step. It panics if there were too many steps or if the context
// has ended.
func (s *stepLimiter) Validate(*jsonschema.ValidatorContext, any) {
	switch s.taken++; {
	case s.taken > s.limit:
		panic(errTooManySteps)
	case s.taken%checkEvery == 0 && s.ctx.Err() != nil:
		panic(errStopped)
	}
}
