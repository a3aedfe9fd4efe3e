package schema

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

const (
	// maxPatterns bounds the different patterns of a schema.
	maxPatterns = 1000
	// maxPatternBytes bounds one: the largest that people pass on to each
	// other, that of all mail addresses, has 6 KiB.
	maxPatternBytes = 8 << 10
	// maxPatternSteps bounds the steps of all of them together, for a short
	// pattern may be a long program: x{0,1000} has a thousand steps. Compiling
	// takes about a microsecond and 100 bytes for each.
	maxPatternSteps = 1 << 16
)

// patterns compiles the patterns of one schema, each once, within bounds.
type patterns struct {
	compiled map[string]*regexp.Regexp
	steps    int
	refused  error // why a pattern was too much; from then on none is compiled
}

// compile is a jsonschema.RegexpEngine.
func (p *patterns) compile(text string) (jsonschema.Regexp, error) {
	if p.refused != nil {
		return nil, p.refused
	}
	if known, found := p.compiled[text]; found {
		return known, nil
	}
	if len(text) > maxPatternBytes {
		return nil, p.refuse("has a pattern of %d bytes, more than %d; shorten it", len(text), maxPatternBytes)
	}
	if len(p.compiled) == maxPatterns {
		return nil, p.refuse("has more than %d patterns; leave some out", maxPatterns)
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	if p.steps += stepsOf(parsed); p.steps > maxPatternSteps {
		return nil, p.refuse("has patterns of more than %d steps together, where x{0,1000} has 1000; repeat less", maxPatternSteps)
	}
	made, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	if p.compiled == nil {
		p.compiled = map[string]*regexp.Regexp{}
	}
	p.compiled[text] = made
	return made, nil
}

func (p *patterns) refuse(format string, args ...any) error {
	p.refused = fmt.Errorf(format, args...)
	return p.refused
}

// placeIn is where in the schema the pattern stands that was too much, out of
// the compiler's error: a JSON pointer.
func (p *patterns) placeIn(err error) string {
	var (
		bad     *jsonschema.InvalidRegexError
		outer   *jsonschema.SchemaValidationError
		invalid *jsonschema.ValidationError
	)
	if errors.As(err, &bad) {
		return strings.TrimPrefix(bad.URL, address)
	}
	if errors.As(err, &outer) && errors.As(outer.Err, &invalid) {
		place, _ := p.placeOf(invalid)
		return "#/" + strings.Join(place, "/")
	}
	return "#"
}

// placeOf looks for the refusal among the causes of an error. The name of a
// property has no place of its own, so that the longest place counts.
func (p *patterns) placeOf(e *jsonschema.ValidationError) (place []string, found bool) {
	if format, is := e.ErrorKind.(*kind.Format); is && errors.Is(format.Err, p.refused) {
		return e.InstanceLocation, true
	}
	for _, cause := range e.Causes {
		if place, found = p.placeOf(cause); found {
			if len(place) < len(e.InstanceLocation) {
				place = e.InstanceLocation
			}
			return place, true
		}
	}
	return nil, false
}

// stepsOf is about how large the program of a pattern will be, where every
// repetition is written out and a class counts by its ranges.
func stepsOf(re *syntax.Regexp) int {
	steps := 1 + len(re.Rune)/2
	for _, sub := range re.Sub {
		steps += stepsOf(sub)
	}
	if re.Op == syntax.OpRepeat {
		steps *= max(re.Min+1, re.Max)
	}
	return steps
}
