package schema

import (
	"context"
	"errors"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	// maxSteps bounds how often a schema within the schema is held against a
	// value within one answer. An answer of 10,000 values under a schema of 50
	// branches takes as many, about a second; forty levels of "allOf" that name
	// the next one twice would take a trillion.
	maxSteps = 1 << 19
	// lookEvery is how many steps pass between looks at whether the answer is
	// still wanted.
	lookEvery = 1 << 10
)

// What ends a validation, as a panic: the library has no other way out.
var (
	errTooManySteps = errors.New("more steps than an answer may take")
	errStopped      = errors.New("the answer is not wanted any more")
)

// steps counts those of the validation that is under way. It stands in the
// compiled schema as a keyword that every schema has.
type steps struct {
	ctx   context.Context
	most  int // maxSteps, but in tests
	taken int
}

// count is the vocabulary of that keyword.
func (s *steps) count() *jsonschema.Vocabulary {
	return &jsonschema.Vocabulary{
		URL:     address + ":steps",
		Compile: func(*jsonschema.CompilerContext, map[string]any) (jsonschema.SchemaExt, error) { return s, nil },
	}
}

// Validate takes a step.
func (s *steps) Validate(*jsonschema.ValidatorContext, any) {
	switch s.taken++; {
	case s.taken > s.most:
		panic(errTooManySteps)
	case s.taken%lookEvery == 0 && s.ctx.Err() != nil:
		panic(errStopped)
	}
}
