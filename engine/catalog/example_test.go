package catalog_test

import (
	"fmt"
	"strings"

	"github.com/rowmill/rowmill/engine/catalog"
)

func ExampleLoad() {
	models, err := catalog.Load(strings.NewReader(`
models:
  - id: my-llama
    kind: generation
    context_length: 8192
    tokenizer: llama-3
    template: llama-3
    engine_names: [meta-llama/Llama-3.1-8B-Instruct]
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	model, known := models.Find("my-llama")
	fmt.Println(model.ContextLength, known)
	fmt.Println("did you mean " + models.Nearest("my-lama") + "?")
	// Output:
	// 8192 true
	// did you mean my-llama?
}

// Load reports all problems of a file in one error.
func ExampleLoad_wrong() {
	_, err := catalog.Load(strings.NewReader(`
models:
  - id: "my llama"
    kind: generation
    context_length: 1
    tokenizer: llama-3
    template: llama-3
`))
	fmt.Println(err)
	// Output:
	// models file: models[0] (my llama): id: "my llama" must be 1 to 128 letters, digits, '.', '_', '-', '/', ':', '@' or '+', starting with a letter or digit
	// models[0] (my llama): context_length: 1 must be at least 2 tokens, one for the prompt and one for the answer; leave it out to use the value that servers report
}

func ExampleMergeSampling() {
	model, _ := catalog.Default().Find("llama-3.1-8b")
	effective, warnings, err := catalog.MergeSampling(model, map[string]any{"temperature": 0.0, "max_tokens": 100.0})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(effective["temperature"], effective["max_tokens"], warnings)
	_, _, err = catalog.MergeSampling(model, map[string]any{"temprature": 0.5})
	fmt.Println(err)
	// Output:
	// 0 100 []
	// sampling_params.temprature: is not a sampling parameter; did you mean "temperature"?
}
