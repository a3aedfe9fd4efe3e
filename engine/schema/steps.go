package schema

import (
	"context"
	"errors"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	// maxSteps limits how many times the library compares a subschema with a value for
	// one answer. An answer of 10,000 values under a schema of 50 branches needs about
	// that many, which take about a second. Forty levels of "allOf" that each name the
	// next level twice would need a trillion.
	maxSteps = 1 << 19
	// checkEvery is the number of steps between two checks of the context.
	checkEvery = 1 << 10
)

// Panic values that end a validation: the library cannot stop in another way.
var (
	errTooManySteps = errors.New("the answer takes too many steps")
	errStopped      = errors.New("the context has ended")
)

// steps counts the steps of the current validation. The library calls it as a keyword
// that every subschema of the compiled schema has.
type steps struct {
	ctx   context.Context
	limit int // maxSteps, less in tests
	taken int
}

// vocabulary returns the vocabulary that has steps as its keyword.
func (s *steps) vocabulary() *jsonschema.Vocabulary {
	return &jsonschema.Vocabulary{
		URL:     address + ":steps",
		Compile: func(*jsonschema.CompilerContext, map[string]any) (jsonschema.SchemaExt, error) { return s, nil },
	}
}

// Validate counts a step.
func (s *steps) Validate(*jsonschema.ValidatorContext, any) {
	switch s.taken++; {
	case s.taken > s.limit:
		panic(errTooManySteps)
	case s.taken%checkEvery == 0 && s.ctx.Err() != nil:
		panic(errStopped)
	}
}
