package function

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rowmill/rowmill"
)

// Limits of a definition.
const (
	// maxInputs is the largest number of declared inputs: more than any real prompt
	// has, but few enough to list in an error message.
	maxInputs = 256
	// MaxPromptBytes is the largest size of a prompt, in bytes. The API has the same
	// limit for a system prompt.
	MaxPromptBytes = 1 << 20
	// maxPlaceholders is the largest number of placeholders in a prompt: more than a
	// person writes by hand. Each placeholder costs memory and time for every row.
	maxPlaceholders = 4096
	// maxDescriptionRunes is the longest description, in Unicode code points. The API
	// has the same limit for the description of a job.
	maxDescriptionRunes = 512
)

var namePattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// FindNameProblem returns an error text if a Function cannot have the name, or "". It refuses
// "." and ".." because they cannot be the last part of a URL path.
func FindNameProblem(name string) string {
	if !namePattern.MatchString(name) || name == "." || name == ".." {
		return "must be 1 to 64 letters, digits, '-', '_' or '.', and not '.' or '..'"
	}
	return ""
}

// Check returns the faults in a definition's name, description, inputs and prompt.
func Check(f *rowmill.Function) (problems []rowmill.FieldError) {
	wrong := func(field, format string, args ...any) {
		problems = append(problems, rowmill.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	if problem := FindNameProblem(f.Name); problem != "" {
		wrong("name", "%s", problem)
	}
	describe := func(field, text string) {
		if n := utf8.RuneCountInString(text); n > maxDescriptionRunes {
			wrong(field, "has %d characters, more than %d; shorten it", n, maxDescriptionRunes)
		}
	}
	describe("description", f.Description)
	if n := len(f.Inputs); n > maxInputs {
		wrong("inputs", "declares %d fields, more than %d; remove some", n, maxInputs)
		return problems
	}
	seen := make(map[string]int, len(f.Inputs))
	for i, in := range f.Inputs {
		field := fmt.Sprintf("inputs[%d]", i)
		if problem := findFieldNameProblem(in.Name); problem != "" {
			wrong(field+".name", "%s", problem)
		} else if first, taken := seen[in.Name]; taken {
			wrong(field+".name", "%q is already the name of inputs[%d]; rename one of them", in.Name, first)
		} else {
			seen[in.Name] = i
		}
		describe(field+".description", in.Description)
	}
	if err := checkText(f.Prompt); err != nil {
		wrong("prompt", "%s", err)
	} else if _, err := NewPrompt(rowmill.FunctionPrompt{Inputs: f.Inputs, Prompt: f.Prompt}); err != nil {
		wrong("prompt", "%s", err)
	}
	return problems
}

// checkText checks the text of a prompt, except its placeholders.
func checkText(prompt string) error {
	switch size, placeholders := len(prompt), strings.Count(prompt, opening); {
	case size == 0:
		return errors.New("is empty; give the text that asks the model, with {{field}} for each input")
	case size > MaxPromptBytes:
		return fmt.Errorf("has %d bytes, more than %d; shorten it", size, MaxPromptBytes)
	case placeholders > maxPlaceholders:
		return fmt.Errorf("has %d placeholders, more than %d; name each value once or a few times", placeholders, maxPlaceholders)
	case !utf8.ValidString(prompt):
		return errors.New("is not UTF-8")
	}
	return nil
}

// FromText returns the prompt of a text whose placeholders declare its inputs: each name is
// a required input. The error says why the text cannot be a prompt.
func FromText(text string) (run rowmill.FunctionPrompt, err error) {
	if err := checkText(text); err != nil {
		return run, err
	}
	t, err := parse(text)
	if err != nil {
		return run, err
	}
	run.Prompt = text
	for i, name := range t.fields {
		if !slices.Contains(t.fields[:i], name) {
			run.Inputs = append(run.Inputs, rowmill.FunctionInput{Name: name, Required: true})
		}
	}
	switch n := len(run.Inputs); {
	case n == 0:
		return run, errors.New("names no column; write {{column}} where the value of a column belongs, or send the text as system_prompt")
	case n > maxInputs:
		return run, fmt.Errorf("names %d columns, more than %d; use fewer", n, maxInputs)
	}
	return run, nil
}
