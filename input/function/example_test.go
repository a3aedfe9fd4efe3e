package function_test

import (
	"encoding/json"
	"fmt"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/input/function"
)

func ExamplePrompt() {
	prompt, err := function.NewPrompt(rowmill.FunctionPrompt{
		Inputs: []rowmill.FunctionInput{{Name: "essay", Required: true}, {Name: "level"}},
		Prompt: "Grade this essay at level {{level}}: {{essay}}",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	row, err := function.ParseRow([]byte(`{"essay": "My {{level}} holiday.", "level": 5}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	values, missing := prompt.Values(row)
	fmt.Println(prompt.Render(values), missing)
	_, missing = prompt.Values(function.FieldValues{"level": json.RawMessage("5")})
	fmt.Println("missing:", missing)
	// Output:
	// Grade this essay at level 5: My {{level}} holiday. []
	// missing: [essay]
}

// Check reports each problem with its field.
func ExampleCheck() {
	problems := function.Check(&rowmill.Function{
		Name: "Grade!", Model: "llama-3.1-8b",
		Inputs: []rowmill.FunctionInput{{Name: "essay", Required: true}},
		Prompt: "Grade {{esay}}.",
	})
	for _, p := range problems {
		fmt.Println(p.Field + ": " + p.Message)
	}
	// Output:
	// name: must be 1 to 64 letters, digits, '-', '_' or '.', and not '.' or '..'
	// prompt: at byte 6: {{esay}} is not among the declared inputs; declare it or correct its name
}
