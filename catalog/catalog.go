// Package catalog owns the list of models Rowmill offers and the rules of
// sampling parameters: which names a caller may give, their types and ranges,
// and how they merge over a model's defaults. It refuses to know which server
// runs a model, and what a job costs.
//
// A catalog is a YAML document with one key, models: a list of entries with
// the fields of rowmill.Model. The embedded default, models.yaml, is an
// example of every field. What sampling names stands over the defaults of the
// model's family, and a null takes one of those away.
package catalog

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/rowmill/rowmill"
)

// DefaultModel is the model of a submission that names none.
const DefaultModel = "gpt-oss-20b"

// maxFileBytes bounds a catalog file: thousands of models, yet nothing that a
// mistaken path could fill memory with.
const maxFileBytes = 1 << 20

//go:embed models.yaml
var embedded string

// idPattern is what a model id may look like: it stands in URLs and log lines.
var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// Catalog is an immutable list of models, safe for concurrent use. Models it
// returns share their maps and slices: callers must not change those.
type Catalog struct {
	models []rowmill.Model
	byID   map[string]int
}

// Default returns the embedded catalog. It panics if that is invalid, which a
// test excludes.
func Default() *Catalog {
	c, err := Load(strings.NewReader(embedded))
	if err != nil {
		panic(fmt.Sprintf("embedded catalog: %v", err))
	}
	return c
}

// Load reads and validates a catalog. The error names the entry and the field
// of everything that is wrong.
func Load(r io.Reader) (*Catalog, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read models file: %w", err)
	}
	if len(text) > maxFileBytes {
		return nil, fmt.Errorf("read models file: larger than %d bytes", maxFileBytes)
	}
	var file struct {
		Models []rowmill.Model `yaml:"models"`
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("parse models file: %w", err)
	}
	if len(file.Models) == 0 {
		return nil, errors.New("models file: models: the list is empty; name at least one model")
	}

	c := &Catalog{models: file.Models, byID: make(map[string]int, len(file.Models))}
	var problems []error
	for i := range c.models {
		m := &c.models[i]
		problems = append(problems, check(i, m)...)
		if first, taken := c.byID[m.ID]; taken {
			problems = append(problems, entryError(i, m, "id", "is the id of models[%d] already", first))
			continue
		}
		c.byID[m.ID] = i
	}
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("models file: %w", err)
	}
	return c, nil
}

// Find returns the model with the id.
func (c *Catalog) Find(id string) (rowmill.Model, bool) {
	i, found := c.byID[id]
	if !found {
		return rowmill.Model{}, false
	}
	return c.models[i], true
}

// All returns the models in the order of the file.
func (c *Catalog) All() []rowmill.Model { return slices.Clone(c.models) }

// Templates lists the templates that a model may name, sorted: those of package
// prompt, which a test there compares.
func Templates() []string {
	return []string{"chatml", "embedding", "gemma", "harmony", "llama-3", "none", "qwen-3", "qwen-3-embedding", "qwen-3-thinking"}
}

// Nearest returns the id most like id, or "" where none is close enough to be
// what a caller meant.
func (c *Catalog) Nearest(id string) string {
	names := make([]string, len(c.models))
	for i, m := range c.models {
		names[i] = m.ID
	}
	return nearest(id, names)
}

func entryError(i int, m *rowmill.Model, field, format string, args ...any) error {
	name := m.ID
	if name == "" {
		name = "without id"
	}
	return fmt.Errorf("models[%d] (%s): %s: %s", i, name, field, fmt.Sprintf(format, args...))
}

// check normalises entry i and returns what is wrong with it.
func check(i int, m *rowmill.Model) (problems []error) {
	wrong := func(field, format string, args ...any) {
		problems = append(problems, entryError(i, m, field, format, args...))
	}
	if !idPattern.MatchString(m.ID) {
		wrong("id", "%q must be 1 to 128 letters, digits, '.', '_' or '-', starting with a letter or digit", m.ID)
	}
	embedding := m.Kind == rowmill.KindEmbedding
	switch m.Kind {
	case rowmill.KindGeneration, rowmill.KindReasoning, rowmill.KindEmbedding:
	default:
		wrong("kind", "%q must be generation, reasoning or embedding", m.Kind)
	}
	if m.ContextLength < 2 {
		wrong("context_length", "%d must be at least 2 tokens, one for the prompt and one for the answer", m.ContextLength)
	}
	if embedding && m.Dimension < 1 {
		wrong("dimension", "an embedding model needs the number of floats per row, at least 1")
	}
	if !embedding && m.Dimension != 0 {
		wrong("dimension", "%d is given, but only embedding models have one", m.Dimension)
	}
	for n, name := range m.EngineNames {
		if strings.TrimSpace(name) == "" {
			wrong(fmt.Sprintf("engine_names[%d]", n), "must not be empty")
		} else if slices.Index(m.EngineNames, name) != n {
			wrong(fmt.Sprintf("engine_names[%d]", n), "%q is listed twice", name)
		}
	}
	if m.Template != "" && !slices.Contains(Templates(), m.Template) {
		wrong("template", "%q is not known: use one of %s, or leave it out", m.Template, strings.Join(Templates(), ", "))
	}
	if m.Tokenizer != "" && !idPattern.MatchString(m.Tokenizer) {
		wrong("tokenizer", "%q must be the name of a vocabulary or of a file in the tokenizers directory without its ending, not a path", m.Tokenizer)
	}
	for _, price := range []struct {
		field string
		usd   float64
	}{{"input_price", m.InputPrice}, {"output_price", m.OutputPrice}} {
		switch {
		case math.IsNaN(price.usd) || math.IsInf(price.usd, 0):
			wrong(price.field, "%v is not a number of USD per million tokens", price.usd)
		case price.usd < 0:
			wrong(price.field, "%v is negative: a price is 0 or more USD per million tokens", price.usd)
		}
	}
	if embedding && len(m.Sampling) > 0 {
		wrong("sampling", "embedding models have no sampling parameters")
		return problems
	}
	given := m.Sampling
	clean, faults := checkSampling(given)
	for _, fault := range faults {
		wrong(strings.Replace(fault.Field, "sampling_params", "sampling", 1), "%s", fault.Message)
	}
	m.Sampling = FamilyDefaults(m.ID, m.Kind)
	for name, value := range given {
		if m.Sampling[name] = clean[name]; value == nil {
			delete(m.Sampling, name)
		}
	}
	return problems
}
