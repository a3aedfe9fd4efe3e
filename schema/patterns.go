package schema

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/rowmill/rowmill/schema/ecma"
	"github.com/rowmill/rowmill/spelling"
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
	// maxMatchSteps bounds the steps that all patterns together take for one answer:
	// half a second, or some seconds for patterns that Go's regexp runs. The pattern of
	// zod for mail addresses takes about 5 steps for each byte of an address.
	maxMatchSteps = 1 << 25
)

// patterns compiles the patterns of one schema, each once, within bounds.
type patterns struct {
	places   map[string]string // of each pattern: the first place where it stands
	compiled map[string]*pattern
	steps    int
	refused  error // why a pattern was refused; from then on none is compiled
	most     int   // steps for an answer: maxMatchSteps, but in tests
	left     int   // of them, for the answer that is checked
}

// A pattern is one that the library matches with.
type pattern struct {
	*ecma.Pattern
	place string
	of    *patterns
}

// MatchString ends the validation by a panic where the answer takes too many steps: the
// library has no other way out.
func (p *pattern) MatchString(text string) bool {
	found, err := p.Match(text, &p.of.left)
	if err != nil {
		panic(&costlyMatch{p, err})
	}
	return found
}

// A costlyMatch ends a validation.
type costlyMatch struct {
	pattern *pattern
	err     error
}

func (c *costlyMatch) problem() string {
	named := fmt.Sprintf("the pattern %q at %s needs", spelling.Shorten(c.pattern.String(), 128), c.pattern.place)
	if errors.Is(c.err, ecma.ErrPlaces) {
		return fmt.Sprintf("%s to remember more than %d places of this answer", named, ecma.MaxPlaces)
	}
	return fmt.Sprintf("%s more than %d steps for this answer", named, c.pattern.of.most)
}

// compile is a jsonschema.RegexpEngine.
func (p *patterns) compile(text string) (jsonschema.Regexp, error) {
	if p.refused != nil {
		return nil, p.refused
	}
	if known, found := p.compiled[text]; found {
		return known, nil
	}
	place := cmp.Or(p.places[text], "#")
	if len(text) > maxPatternBytes {
		return nil, p.refuse("has a pattern of %d bytes, more than %d; shorten it (found at %s)", len(text), maxPatternBytes, place)
	}
	if len(p.compiled) == maxPatterns {
		return nil, p.refuse("has more than %d patterns; leave some out (found at %s)", maxPatterns, place)
	}
	made, err := ecma.Compile(text, maxPatternSteps)
	if err != nil {
		return nil, p.refuse("is no JSON Schema: the pattern %q at %s is refused: %w", spelling.Shorten(text, 128), place, err)
	}
	if p.steps += made.Size(); p.steps > maxPatternSteps {
		return nil, p.refuse("has patterns of more than %d steps together, where x{0,1000} has 1000; repeat less (found at %s)", maxPatternSteps, place)
	}
	if p.compiled == nil {
		p.compiled = map[string]*pattern{}
	}
	p.compiled[text] = &pattern{made, place, p}
	return p.compiled[text], nil
}

func (p *patterns) refuse(format string, args ...any) error {
	p.refused = fmt.Errorf(format, args...)
	return p.refused
}

// placesOfPatterns returns the first place of each pattern in a schema: a JSON pointer.
func placesOfPatterns(document any) map[string]string {
	places := map[string]string{}
	add := func(text string, path []string) {
		if _, known := places[text]; !known {
			places[text] = spelling.Shorten("#/"+strings.Join(path, "/"), 256)
		}
	}
	walkSchemas(document, nil, func(schema map[string]any, path []string) {
		if text, is := schema["pattern"].(string); is {
			add(text, append(path, "pattern"))
		}
		named, _ := schema["patternProperties"].(map[string]any)
		for _, text := range slices.Sorted(maps.Keys(named)) {
			add(text, append(path, "patternProperties", step(text)))
		}
	})
	return places
}

// stepsOf is about how large the program of a regular expression of RE2 will be, where
// every repetition is written out and a class counts by its ranges.
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
