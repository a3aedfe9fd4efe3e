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
	// maxFormSteps bounds the steps of a regular expression that whole answers
	// are held against: an answer takes its length times the steps.
	maxFormSteps = 4096
	// maxChoices and maxChoiceBytes bound a list of choices: as many as patterns
	// of a schema, each as long as a stop string.
	maxChoices     = maxPatterns
	maxChoiceBytes = 1024
	// maxGrammarBytes bounds a grammar. Those of whole programming languages have
	// some 20 KiB.
	maxGrammarBytes = 64 << 10
)

// A Form binds answers otherwise than by a JSON Schema: to a regular expression,
// to a list of choices, or to a grammar. It is safe for concurrent use.
type Form struct {
	mu      sync.Mutex // one answer at a time, as for a Schema
	pattern *regexp.Regexp
	choices map[string]bool // nil for none
}

// CompileForm takes the one rule that a job's structured_outputs holds: regex,
// choice or grammar. What is wrong with it is said in words that follow its name.
func CompileForm(rule map[string]any) (*Form, error) {
	if len(rule) != 1 {
		return nil, errors.New("must have one of regex, choice and grammar")
	}
	f := &Form{}
	for name, value := range rule {
		switch value := value.(type) {
		case string:
			switch {
			case !utf8.ValidString(value) || strings.ContainsRune(value, 0):
				return nil, fmt.Errorf("has a %s with a NUL character, or that is not UTF-8; leave it out", name)
			case strings.TrimSpace(value) == "":
				return nil, fmt.Errorf("has an empty %s; write one, or leave it out", name)
			case name == "regex":
				return f, f.compilePattern(value)
			case name == "grammar":
				return f, checkGrammar(value)
			}
		case []any:
			if name == "choice" {
				return f, f.choose(value)
			}
		}
		return nil, fmt.Errorf("has a %s of a wrong type or name; regex and grammar are strings, choice is a list of strings", name)
	}
	return nil, nil
}

// compilePattern takes a regular expression for whole answers. Servers let a dot
// be any character, and look for no lines.
func (f *Form) compilePattern(text string) error {
	if len(text) > maxPatternBytes {
		return fmt.Errorf("has a regex of %d bytes, more than %d; shorten it", len(text), maxPatternBytes)
	}
	parsed, err := syntax.Parse(text, syntax.Perl|syntax.DotNL)
	if err != nil {
		return fmt.Errorf("has a regex that is not taken, which must be one of RE2, without lookaround and references to groups: %w", err)
	}
	if steps := stepsOf(parsed); steps > maxFormSteps {
		return fmt.Errorf("has a regex of %d steps, more than %d, where x{0,1000} has 1000; repeat less", steps, maxFormSteps)
	}
	f.pattern, err = regexp.Compile(`\A(?s:` + text + `)\z`)
	return err
}

func (f *Form) choose(list []any) error {
	if len(list) == 0 || len(list) > maxChoices {
		return fmt.Errorf("has %d choices; give 1 to %d", len(list), maxChoices)
	}
	f.choices = make(map[string]bool, len(list))
	for i, entry := range list {
		choice, is := entry.(string)
		if !is || choice == "" || len(choice) > maxChoiceBytes || !utf8.ValidString(choice) || strings.ContainsRune(choice, 0) {
			return fmt.Errorf("has at choice[%d] something else than a string of 1 to %d bytes", i, maxChoiceBytes)
		}
		f.choices[choice] = true
	}
	return nil
}

// Violation says what is wrong with an answer, in words that follow a colon;
// nothing where it conforms. Answers are not held against a grammar: that is the
// server's alone.
func (f *Form) Violation(answer string) string {
	switch {
	case f.choices != nil && !f.choices[answer]:
		return "it is none of the choices"
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

// checkGrammar bounds what a server's parser of grammars would have to take:
// groups within groups, which it enters one by one, and repetitions, which it
// writes out. Everything else about a grammar the server says.
func checkGrammar(text string) error {
	if len(text) > maxGrammarBytes {
		return fmt.Errorf("has a grammar of %d bytes, more than %d; shorten it", len(text), maxGrammarBytes)
	}
	var (
		outer []int // steps of the groups around this one
		steps int   // of this group
		last  int   // of the last element
	)
	for at := 0; at < len(text); at++ {
		switch c := text[at]; c {
		case '"', '[':
			end := closing(text, at)
			last, at = 1+(end-at)/2, end
			steps += last
		case '#':
			for at < len(text) && text[at] != '\n' {
				at++
			}
		case '(':
			if outer = append(outer, steps); len(outer) > maxLevels {
				return fmt.Errorf("has a grammar of groups nested more than %d deep; use rules of their own", maxLevels)
			}
			steps = 0
		case ')':
			if last = steps; len(outer) > 0 {
				steps += outer[len(outer)-1]
				outer = outer[:len(outer)-1]
			}
		case '{':
			most, end := repetition(text, at)
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

// closing is where the literal or the class that begins at a byte ends, or the
// text does.
func closing(text string, at int) int {
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

// repetition reads {m,n}: the larger number, no more than is refused in any case,
// and where it ends.
func repetition(text string, at int) (most, end int) {
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
