package function

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/rowmill/rowmill"
)

// The limits of a definition.
const (
	// maxInputs bounds the declared inputs: more than any prompt has, few
	// enough to be listed in a message.
	maxInputs = 256
	// MaxPromptBytes bounds the prompt, as the API bounds a system prompt.
	MaxPromptBytes = 1 << 20
	// maxPlaceholders bounds the fields in a prompt: more than anybody writes by
	// hand. Each takes memory and time for every row.
	maxPlaceholders = 4096
	// maxDescriptionRunes bounds a description, in Unicode code points, as the
	// API bounds that of a job.
	maxDescriptionRunes = 512
)

var namePattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// CheckName says what is wrong with the name of a Function, or nothing. "." and
// ".." cannot be the last part of an address.
func CheckName(name string) string {
	if !namePattern.MatchString(name) || name == "." || name == ".." {
		return "must be 1 to 64 letters, digits, '-', '_' or '.', and not '.' or '..'"
	}
	return ""
}

// Check returns what is wrong with a definition's name, description, inputs
// and prompt.
func Check(f *rowmill.Function) (problems []rowmill.FieldError) {
	wrong := func(field, format string, args ...any) {
		problems = append(problems, rowmill.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	if problem := CheckName(f.Name); problem != "" {
		wrong("name", "%s", problem)
	}
	describe := func(field, text string) {
		if n := utf8.RuneCountInString(text); n > maxDescriptionRunes {
			wrong(field, "has %d characters, more than %d; shorten it", n, maxDescriptionRunes)
		}
	}
	describe("description", f.Description)
	if n := len(f.Inputs); n > maxInputs {
		wrong("inputs", "declares %d fields, more than %d", n, maxInputs)
		return problems
	}
	seen := make(map[string]int, len(f.Inputs))
	for i, in := range f.Inputs {
		field := fmt.Sprintf("inputs[%d]", i)
		if problem := checkField(in.Name); problem != "" {
			wrong(field+".name", "%s", problem)
		} else if first, taken := seen[in.Name]; taken {
			wrong(field+".name", "%q is the name of inputs[%d] already", in.Name, first)
		} else {
			seen[in.Name] = i
		}
		describe(field+".description", in.Description)
	}
	switch size := len(f.Prompt); {
	case size == 0:
		wrong("prompt", "is empty; give the text that asks the model, with {{field}} for each input")
	case size > MaxPromptBytes:
		wrong("prompt", "has %d bytes, more than %d; shorten it", size, MaxPromptBytes)
	case strings.Count(f.Prompt, opening) > maxPlaceholders:
		wrong("prompt", "has %d placeholders, more than %d; name each value once or a few times", strings.Count(f.Prompt, opening), maxPlaceholders)
	case !utf8.ValidString(f.Prompt):
		wrong("prompt", "is not UTF-8")
	default:
		var syntax *SyntaxError
		if _, err := NewPrompt(rowmill.FunctionRun{Inputs: f.Inputs, Prompt: f.Prompt}); errors.As(err, &syntax) {
			wrong("prompt", "%s", syntax.Error())
		}
	}
	return problems
}
