package schema

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"sync"
	"unicode/utf8"
)

const (
	// maxFormSteps limits the steps of a regular expression that a whole answer must
	// match. The time of a match grows with the length of the answer times the steps.
	maxFormSteps = 4096
	// maxChoices limits the number of choices, like the number of patterns in a schema.
	// maxChoiceBytes limits the length of one choice, like the length of a stop string.
	maxChoices     = maxPatterns
	maxChoiceBytes = 1024
	// maxGrammarBytes limits the length of a grammar. A grammar of a whole programming
	// language has about 20 KiB.
	maxGrammarBytes = 64 << 10
)

// A Constraint restricts answers to a regular expression, a list of choices or a
// grammar. It is the compiled rule of a job's structured_outputs; for JSON there is
// Schema. It is safe for concurrent use.
type Constraint struct {
	mu      sync.Mutex      // allows one check of an answer at a time, so that checks use only one processor
	pattern *regexp.Regexp  // matches the allowed answers; nil if the rule is no regex
	choices map[string]bool // the allowed answers; nil if the rule is no list of choices
}

// CompileConstraint compiles the rule of a job's structured_outputs: regex, choice or
// grammar. The text of its error completes a sentence that begins with the name of the
// field.
func CompileConstraint(rule map[string]any) (*Constraint, error) {
	if len(rule) != 1 {
		return nil, errors.New("must have one of regex, choice and grammar")
	}
	f := &Constraint{}
	for name, value := range rule {
		switch value := value.(type) {
		case string:
			switch {
			case !utf8.ValidString(value) || strings.ContainsRune(value, 0):
				return nil, fmt.Errorf("has a %s with a NUL character or with bytes that are not UTF-8; remove them", name)
			case strings.TrimSpace(value) == "":
				return nil, fmt.Errorf("has an empty %s; write one, or leave it out", name)
			case name == "regex":
				return f, f.compilePattern(value)
			case name == "grammar":
				return f, checkGrammar(value)
			}
		case []any:
			if name == "choice" {
				return f, f.compileChoices(value)
			}
		}
		return nil, fmt.Errorf("has a rule %s with a wrong type or name; regex and grammar are strings, choice is a list of strings", name)
	}
	return nil, nil
}

// compilePattern compiles a regular expression that a whole answer must match. As on
// inference servers, a dot also matches a line break, and ^ and $ match only at the
// begin and the end of the answer.
func (f *Constraint) compilePattern(text string) error {
	if len(text) > maxPatternBytes {
		return fmt.Errorf("has a regex of %d bytes, more than %d; shorten it", len(text), maxPatternBytes)
	}
	parsed, err := syntax.Parse(text, syntax.Perl|syntax.DotNL)
	if err != nil {
		return fmt.Errorf("has a regex that is not valid RE2 syntax, which has no lookaround and no back-references: %w", err)
	}
	if steps := programSize(parsed); steps > maxFormSteps {
		return fmt.Errorf("has a regex of %d steps, more than %d, where x{0,1000} has 1000; repeat less", steps, maxFormSteps)
	}
	f.pattern, err = regexp.Compile(`\A(?s:` + text + `)\z`)
	return err
}

// compileChoices checks a list of choices and stores it in f.
func (f *Constraint) compileChoices(list []any) error {
	if len(list) == 0 || len(list) > maxChoices {
		return fmt.Errorf("has %d choices; give 1 to %d", len(list), maxChoices)
	}
	f.choices = make(map[string]bool, len(list))
	for i, entry := range list {
		choice, is := entry.(string)
		if !is || choice == "" || len(choice) > maxChoiceBytes || !utf8.ValidString(choice) || strings.ContainsRune(choice, 0) {
			return fmt.Errorf("has a choice[%d] that is not a string of 1 to %d bytes", i, maxChoiceBytes)
		}
		f.choices[choice] = true
	}
	return nil
}

// Violation describes how an answer violates the constraint; empty if the answer
// conforms. The text completes a sentence after a colon. Violation never checks a
// grammar: only inference servers do.
func (f *Constraint) Violation(answer string) string {
	switch {
	case f.choices != nil && !f.choices[answer]:
		return "it is not one of the choices"
	case f.pattern == nil:
		return ""
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.pattern.MatchString(answer) {
		return "it does not match the regex as a whole"
	}
	return ""
}

// checkGrammar limits what a grammar costs the parser of an inference server. The
// parser calls itself for nested groups and copies repeated parts. The server checks
// everything else in a grammar.
func checkGrammar(text string) error {
	if len(text) > maxGrammarBytes {
		return fmt.Errorf("has a grammar of %d bytes, more than %d; shorten it", len(text), maxGrammarBytes)
	}
	var (
		outer []int // steps of each enclosing group before its inner group
		steps int   // steps of this group
		last  int   // steps of the last element
	)
	for at := 0; at < len(text); at++ {
		switch c := text[at]; c {
		case '"', '[':
			end := findClosing(text, at)
			last, at = 1+(end-at)/2, end
			steps += last
		case '#':
			for at < len(text) && text[at] != '\n' {
				at++
			}
		case '(':
			if outer = append(outer, steps); len(outer) > maxLevels {
				return fmt.Errorf("has a grammar with groups nested more than %d deep; move inner groups into separate rules", maxLevels)
			}
			steps = 0
		case ')':
			if last = steps; len(outer) > 0 {
				steps += outer[len(outer)-1]
				outer = outer[:len(outer)-1]
			}
		case '{':
			most, end := parseRepetition(text, at)
			steps, last, at = steps+last*max(most-1, 0), last*max(most, 1), end
		case ' ', '\t', '\r', '\n':
		default:
			last = 1
			steps++
		}
		if steps > maxPatternSteps {
			return fmt.Errorf("has a grammar of more than %d steps, where x{0,1000} has 1000; repeat less", maxPatternSteps)
		}
	}
	return nil
}

// findClosing returns the position of the quote or bracket that ends the literal or class
// at position at, or the last position of the text if there is no end.
func findClosing(text string, at int) int {
	end := text[at]
	if end == '[' {
		end = ']'
	}
	for at++; at < len(text) && text[at] != end; at++ {
		if text[at] == '\\' {
			at++
		}
	}
	return min(at, len(text)-1)
}

// parseRepetition reads {m,n} at position at. It returns the larger number, limited to
// maxPatternSteps+1, and the position of the closing brace.
func parseRepetition(text string, at int) (most, end int) {
	number := 0
	for at++; at < len(text) && text[at] != '}'; at++ {
		if c := text[at]; c >= '0' && c <= '9' {
			number = min(number*10+int(c-'0'), maxPatternSteps+1)
		} else {
			number = 0
		}
		most = max(most, number)
	}
	return most, min(at, len(text)-1)
}
