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

	"github.com/rowmill/rowmill/engine/schema/ecma"
	"github.com/rowmill/rowmill/internal/textfmt"
)

const (
	// maxPatterns limits the number of different patterns in a schema.
	maxPatterns = 1000
	// maxPatternBytes limits the length of one pattern. The largest pattern in common
	// use, for all mail addresses, has 6 KiB.
	maxPatternBytes = 8 << 10
	// maxPatternSteps limits the total steps of all patterns of a schema, because a
	// short pattern can be a long program: x{0,1000} has a thousand steps. To compile
	// one step takes about a microsecond and 100 bytes.
	maxPatternSteps = 1 << 16
	// maxMatchSteps limits the steps of all pattern matches for one answer. So many
	// steps take half a second, or some seconds if Go's regexp runs the patterns. zod's
	// pattern for mail addresses takes about 5 steps per byte of an address.
	maxMatchSteps = 1 << 25
)

// patternCompiler compiles each different pattern of a schema once, within the limits above.
type patternCompiler struct {
	places   map[string]string   // JSON pointer to the first use of each pattern in the schema, by pattern text
	compiled map[string]*pattern // compiled patterns, by pattern text
	steps    int                 // total steps of the compiled patterns
	refused  error               // error of the first refused pattern; after it no pattern is compiled
	limit    int                 // maximum steps per answer: maxMatchSteps, lower in tests
	left     int                 // steps left for the current answer
}

// A pattern is a compiled pattern in the form that the validation library needs.
type pattern struct {
	*ecma.Pattern
	place  string // JSON pointer to the first use in the schema
	parent *patternCompiler
}

// MatchString reports whether text matches. It panics with a costlyMatch if the answer
// needs too many steps, because only a panic can stop a validation of the library.
func (p *pattern) MatchString(text string) bool {
	found, err := p.Match(text, &p.parent.left)
	if err != nil {
		panic(&costlyMatch{p, err})
	}
	return found
}

// A costlyMatch is the panic value that stops the validation of an answer when a
// pattern needs too many steps or too much memory.
type costlyMatch struct {
	pattern *pattern
	err     error
}

// problem describes the limit that the pattern exceeded.
func (c *costlyMatch) problem() string {
	named := fmt.Sprintf("the pattern %q at %s needs", textfmt.Shorten(c.pattern.String(), 128), c.pattern.place)
	if errors.Is(c.err, ecma.ErrPlaces) {
		return fmt.Sprintf("%s to remember more than %d places of this answer", named, ecma.MaxPlaces)
	}
	return fmt.Sprintf("%s more than %d steps for this answer", named, c.pattern.parent.limit)
}

// compile returns the compiled pattern text. It compiles each text once, within the
// limits, and implements jsonschema.RegexpEngine.
func (p *patternCompiler) compile(text string) (jsonschema.Regexp, error) {
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
		return nil, p.refuse("is not a valid JSON Schema: the pattern %q at %s is refused: %w", textfmt.Shorten(text, 128), place, err)
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

// refuse returns an error and stores it, so that no further pattern is compiled.
func (p *patternCompiler) refuse(format string, args ...any) error {
	p.refused = fmt.Errorf(format, args...)
	return p.refused
}

// findPatternPointers returns the JSON pointer to the first use of each pattern in a
// schema, by pattern text.
func findPatternPointers(document any) map[string]string {
	places := map[string]string{}
	add := func(text string, path []string) {
		if _, known := places[text]; !known {
			places[text] = textfmt.Shorten("#/"+strings.Join(path, "/"), 256)
		}
	}
	walkSchemas(document, nil, func(schema map[string]any, path []string) {
		if text, is := schema["pattern"].(string); is {
			add(text, append(path, "pattern"))
		}
		named, _ := schema["patternProperties"].(map[string]any)
		for _, text := range slices.Sorted(maps.Keys(named)) {
			add(text, append(path, "patternProperties", pointerStep(text)))
		}
	})
	return places
}

// programSize estimates the number of steps in the program of an RE2 expression. A
// repeated part counts once per repetition, and a class counts its ranges.
func programSize(re *syntax.Regexp) int {
	steps := 1 + len(re.Rune)/2
	for _, sub := range re.Sub {
		steps += programSize(sub)
	}
	if re.Op == syntax.OpRepeat {
		steps *= max(re.Min+1, re.Max)
	}
	return steps
}
