// Package catalog owns the list of models that Rowmill offers and the rules of sampling
// parameters: their names, types and ranges, and how a caller's parameters override a
// model's defaults. It does not know which server runs a model or how much a job costs.
//
// A catalog is a YAML document. Its field models is a list of entries with the fields
// of rowmill.Model; the embedded catalog, models.yaml, shows every field. An entry may
// omit the fields that servers report: kind, context_length and dimension. A model
// with neither price has no price. The sampling of an entry overrides the defaults of
// the model's family; null removes a default. The field aliases maps further names to
// an id or to a server's name for a model. With extends: default, Load adds the entries
// and aliases of the embedded catalog for ids and names that the file does not define.
package catalog

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/rowmill/rowmill"
)

// DefaultModel is the model of a submission that does not name one.
const DefaultModel = "gpt-oss-20b"

// maxFileBytes limits the size of a catalog file. The limit is enough for thousands of
// models, and protects the memory of the node if the path is wrong.
const maxFileBytes = 1 << 20

//go:embed models.yaml
var embedded string

// idPattern matches a model's id: a Hugging Face id, or a server's name with a tag.
// tokenizerPattern matches a tokenizer's name, which is also a file name. Both keep
// control characters out of log lines.
var (
	idPattern        = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@+-]{0,127}$`)
	tokenizerPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
)

// maxAlias limits an alias and its target, in bytes.
const maxAlias = 256

// Catalog is an immutable list of models, safe for concurrent use. Callers must not
// change the maps and slices of a returned model, because they belong to the Catalog.
type Catalog struct {
	models   []rowmill.Model
	byID     map[string]int    // index in models, by model id
	byEngine map[string][]int  // indexes in models, by engine name, in the order of the file
	aliases  map[string]string // target of each alias: a model id or a server's name for a model
}

// Default returns the embedded catalog, models.yaml. It panics if this catalog is
// invalid; a test checks that it is valid. All calls return the same Catalog.
func Default() *Catalog {
	embeddedOnce.Do(func() {
		c, err := Load(strings.NewReader(embedded))
		if err != nil {
			panic(fmt.Sprintf("embedded catalog: %v", err))
		}
		embeddedCatalog = c
	})
	return embeddedCatalog
}

var (
	embeddedOnce    sync.Once
	embeddedCatalog *Catalog
)

// A modelsFile is the decoded YAML of a catalog file.
type modelsFile struct {
	Extends string            `yaml:"extends"`
	Aliases map[string]string `yaml:"aliases"`
	Models  []rowmill.Model   `yaml:"models"`
}

// decodeModelsFile reads and decodes a catalog file. It checks only the YAML and the names of
// the fields.
func decodeModelsFile(r io.Reader) (file modelsFile, err error) {
	text, err := io.ReadAll(io.LimitReader(r, maxFileBytes+1))
	if err != nil {
		return file, fmt.Errorf("read models file: %w", err)
	}
	if len(text) > maxFileBytes {
		return file, fmt.Errorf("read models file: larger than %d bytes", maxFileBytes)
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return file, fmt.Errorf("parse models file: %w", err)
	}
	markUnpriced(text, file.Models)
	return file, nil
}

// Load reads and validates a catalog. The error names the entry and the field of every
// problem.
func Load(r io.Reader) (*Catalog, error) {
	file, err := decodeModelsFile(r)
	if err != nil {
		return nil, err
	}
	var problems []error
	switch {
	case file.Extends != "" && file.Extends != "default":
		problems = append(problems, fmt.Errorf(`extends: %q must be default, or be left out`, file.Extends))
	case file.Extends == "" && len(file.Models) == 0:
		return nil, errors.New("models file: models: the list is empty; name at least one model, or set extends: default")
	}
	c := &Catalog{models: file.Models, byID: make(map[string]int, len(file.Models)), byEngine: map[string][]int{}, aliases: map[string]string{}}
	for i := range c.models {
		m := &c.models[i]
		problems = append(problems, validateEntry(i, m)...)
		if first, taken := c.byID[m.ID]; taken {
			problems = append(problems, entryError(i, m, "id", "is the id of models[%d] already", first))
			continue
		}
		c.byID[m.ID] = i
	}
	maps.Copy(c.aliases, file.Aliases)
	problems = append(problems, c.checkAliases()...)
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("models file: %w", err)
	}
	if file.Extends != "" {
		c.addMissingFrom(Default())
	}
	for i, m := range c.models {
		for _, name := range m.EngineNames {
			c.byEngine[name] = append(c.byEngine[name], i)
		}
	}
	return c, nil
}

// markUnpriced sets NoPrice for each model whose entry in text gives no price. An entry
// with a price of 0 has a price.
func markUnpriced(text []byte, models []rowmill.Model) {
	var prices struct {
		Models []struct {
			Input  *float64 `yaml:"input_price"`
			Output *float64 `yaml:"output_price"`
		} `yaml:"models"`
	}
	_ = yaml.Unmarshal(text, &prices) // Load has decoded this text without error
	for i := range min(len(prices.Models), len(models)) {
		models[i].NoPrice = prices.Models[i].Input == nil && prices.Models[i].Output == nil
	}
}

// checkAliases returns an error for each invalid alias, sorted by alias.
func (c *Catalog) checkAliases() (problems []error) {
	for _, alias := range slices.Sorted(maps.Keys(c.aliases)) {
		target := c.aliases[alias]
		_, chained := c.aliases[target]
		_, taken := c.byID[alias]
		says := ""
		switch {
		case strings.TrimSpace(alias) == "" || len(alias) > maxAlias:
			says = fmt.Sprintf("must be a name of 1 to %d bytes", maxAlias)
		case strings.TrimSpace(target) == "" || len(target) > maxAlias:
			says = "must have as its target an id of the catalog, or a server's name for a model"
		case chained:
			says = fmt.Sprintf("has the target %q, which is an alias too: use the target of that alias", target)
		case taken:
			says = "is the id of a model already"
		default:
			continue
		}
		problems = append(problems, fmt.Errorf("aliases: %q %s", alias, says))
	}
	return problems
}

// addMissingFrom adds the models and aliases of another catalog to c, except those whose id or
// name c already defines.
func (c *Catalog) addMissingFrom(other *Catalog) {
	named := func(name string) bool {
		_, id := c.byID[name]
		_, alias := c.aliases[name]
		return id || alias
	}
	for _, m := range other.models {
		if !named(m.ID) {
			c.byID[m.ID] = len(c.models)
			c.models = append(c.models, m)
		}
	}
	for alias, target := range other.aliases {
		if !named(alias) {
			c.aliases[alias] = target
		}
	}
}

// Find returns the model with this id; false if the catalog has none.
func (c *Catalog) Find(id string) (rowmill.Model, bool) {
	i, found := c.byID[id]
	if !found {
		return rowmill.Model{}, false
	}
	return c.models[i], true
}

// ResolveAlias returns the target of an alias. It returns any other name unchanged.
func (c *Catalog) ResolveAlias(name string) string {
	if target, is := c.aliases[name]; is {
		return target
	}
	return name
}

// Aliases returns a map from each alias to its target.
func (c *Catalog) Aliases() map[string]string { return maps.Clone(c.aliases) }

// FindByEngineName returns the models that list name among their engine names, in the order
// of the file.
func (c *Catalog) FindByEngineName(name string) []rowmill.Model {
	found := make([]rowmill.Model, 0, len(c.byEngine[name]))
	for _, i := range c.byEngine[name] {
		found = append(found, c.models[i])
	}
	return found
}

// KnowsCapability reports whether the catalog says enough about a model with these names that
// no probe row is necessary: all its entries give the same kind, and the dimension if
// the model embeds.
func (c *Catalog) KnowsCapability(names ...string) bool {
	var kind rowmill.Kind
	for _, name := range names {
		entries := c.FindByEngineName(name)
		if m, found := c.Find(name); found {
			entries = append(entries, m)
		}
		for _, m := range entries {
			if m.Kind == "" || m.Kind == rowmill.KindEmbedding && m.Dimension == 0 || kind != "" && kind != m.Kind {
				return false
			}
			kind = m.Kind
		}
	}
	return kind != ""
}

// All returns the models in the order of the file.
func (c *Catalog) All() []rowmill.Model { return slices.Clone(c.models) }

// PromptTemplates lists the prompt templates that a model may name, sorted. Package prompt
// implements the templates, and a test there checks that both lists are equal.
func PromptTemplates() []string {
	return []string{"chatml", "embedding", "gemma", "harmony", "llama-3", "none", "qwen-3", "qwen-3-embedding", "qwen-3-thinking"}
}

// Nearest returns the model id that is most similar to id, or "" if no id is similar
// enough.
func (c *Catalog) Nearest(id string) string {
	names := make([]string, len(c.models))
	for i, m := range c.models {
		names[i] = m.ID
	}
	return NearestName(id, names)
}

// entryError returns an error about one field of entry i of the catalog.
func entryError(i int, m *rowmill.Model, field, format string, args ...any) error {
	name := m.ID
	if name == "" {
		name = "without id"
	}
	return fmt.Errorf("models[%d] (%s): %s: %s", i, name, field, fmt.Sprintf(format, args...))
}

// validateEntry fills the defaults of entry i in m and returns an error for each invalid field.
func validateEntry(i int, m *rowmill.Model) (problems []error) {
	wrong := func(field, format string, args ...any) {
		problems = append(problems, entryError(i, m, field, format, args...))
	}
	if !idPattern.MatchString(m.ID) {
		wrong("id", "%q must be 1 to 128 letters, digits, '.', '_', '-', '/', ':', '@' or '+', starting with a letter or digit", m.ID)
	}
	embedding := m.Kind == rowmill.KindEmbedding
	switch m.Kind {
	case rowmill.KindGeneration, rowmill.KindReasoning, rowmill.KindEmbedding, "":
	default:
		wrong("kind", "%q must be generation, reasoning or embedding, or be left out if servers report it", m.Kind)
	}
	if m.ContextLength != 0 && m.ContextLength < 2 {
		wrong("context_length", "%d must be at least 2 tokens, one for the prompt and one for the answer; leave it out to use the value that servers report", m.ContextLength)
	}
	if m.Dimension < 0 {
		wrong("dimension", "%d must be the number of floats per row, at least 1; leave it out to use the value that servers report", m.Dimension)
	}
	if !embedding && m.Kind != "" && m.Dimension != 0 {
		wrong("dimension", "%d is given, but only embedding models have one", m.Dimension)
	}
	for n, name := range m.EngineNames {
		if strings.TrimSpace(name) == "" {
			wrong(fmt.Sprintf("engine_names[%d]", n), "must not be empty")
		} else if slices.Index(m.EngineNames, name) != n {
			wrong(fmt.Sprintf("engine_names[%d]", n), "%q is listed twice", name)
		}
	}
	if m.Template != "" && !slices.Contains(PromptTemplates(), m.Template) {
		wrong("template", "%q is not known: use one of %s, or leave it out", m.Template, strings.Join(PromptTemplates(), ", "))
	}
	if m.Tokenizer != "" && !tokenizerPattern.MatchString(m.Tokenizer) {
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
	m.Sampling = map[string]any{}
	for name, value := range given {
		if m.Sampling[name] = clean[name]; value == nil {
			m.Sampling[name] = nil
		}
	}
	if m.Kind != "" {
		*m = WithKind(*m, m.Kind, m.ID)
	}
	return problems
}

// WithKind returns a copy of catalog entry m with the given kind and with the sampling
// defaults of a model family. m.Sampling must contain only the parameters of the entry
// itself, which override the family's defaults.
func WithKind(m rowmill.Model, kind rowmill.Kind, family string) rowmill.Model {
	own := m.Sampling
	m.Kind, m.Sampling = kind, FamilyDefaults(family, kind)
	if kind == rowmill.KindEmbedding {
		return m
	}
	m.Dimension = 0
	for name, value := range own {
		if m.Sampling[name] = value; value == nil {
			delete(m.Sampling, name)
		}
	}
	return m
}
