package main

import (
	"fmt"
	"sync"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/engine/catalog"
	"github.com/rowmill/rowmill/tokenize"
	"github.com/rowmill/rowmill/tokenize/prompt"
)

// substituteVocabulary is the vocabulary for models whose own vocabulary this node does not have.
// Most texts have almost the same number of tokens, within a few percent, in all modern
// vocabularies. The counts that servers report correct the remaining error.
const substituteVocabulary = "o200k_base"

// vocabularyCache loads the tokenizers of models and caches them. It is safe for
// concurrent use.
type vocabularyCache struct {
	find prompt.Tokenizers

	mu     sync.Mutex
	loaded map[[3]string]vocabulary // key: names of the tokenizer and the template, and the model's ID if the model names no tokenizer
}

type vocabulary struct {
	tokens  prompt.Tokenizer
	warning string
}

func newVocabularyCache(dir string) *vocabularyCache {
	return &vocabularyCache{find: prompt.Tokenizers{Dir: dir}, loaded: make(map[[3]string]vocabulary)}
}

// validateAll loads the vocabularies of all models, if the operator has set a directory of
// vocabularies. So a damaged file stops the start of the node, and does not fail the
// first job.
func (v *vocabularyCache) validateAll(models []rowmill.Model) error {
	if v.find.Dir == "" {
		return nil
	}
	for _, m := range models {
		if _, _, err := v.findTokenizer(m); err != nil {
			return fmt.Errorf("model %s: %w", m.ID, err)
		}
	}
	return nil
}

// maxPreloaded limits how many vocabularies of a server preload loads. A server with more
// models is a gateway.
const maxPreloaded = 8

// preload loads the vocabularies of served models before a job needs them. It ignores
// errors: the first job of the model reports them.
func (v *vocabularyCache) preload(known *catalog.Catalog, served []engine.ServedModel) {
	for _, s := range served[:min(len(served), maxPreloaded)] {
		models := known.FindByEngineName(s.Name)
		if m, found := known.Find(s.Name); found {
			models = append(models, m)
		}
		if len(models) == 0 {
			models = []rowmill.Model{{ID: s.Name}}
		}
		for _, m := range models {
			_, _, _ = v.findTokenizer(m)
		}
	}
}

// findTokenizer returns the tokenizer of a model. The warning is set if the tokenizer is a
// substitute, because the model's own vocabulary is missing.
func (v *vocabularyCache) findTokenizer(m rowmill.Model) (prompt.Tokenizer, string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	have, err := v.loadVocabulary(m)
	return have.tokens, have.warning, err
}

func (v *vocabularyCache) loadVocabulary(m rowmill.Model) (vocabulary, error) {
	key := [3]string{m.Tokenizer, m.Template}
	if m.Tokenizer == "" {
		key[2] = m.ID
	}
	if have, ok := v.loaded[key]; ok {
		return have, nil
	}
	template, err := prompt.FindTemplate(m.Template)
	if err != nil {
		return vocabulary{}, err
	}
	var have vocabulary
	var encoding *tokenize.Encoding
	if m.Tokenizer == "" {
		encoding, have.warning = v.find.FindForModel(m.ID)
	} else {
		encoding, have.warning, err = v.find.Find(m.Tokenizer)
	}
	switch {
	case err != nil:
		return vocabulary{}, err
	case encoding != nil:
		have.tokens = template.Encoding(encoding)
	case m.Tokenizer == substituteVocabulary:
		return vocabulary{}, fmt.Errorf("load %s: %s", substituteVocabulary, have.warning)
	default: // models without their own vocabulary share the vocabulary substituteVocabulary
		other, err := v.loadVocabulary(rowmill.Model{Tokenizer: substituteVocabulary, Template: m.Template})
		if err != nil {
			return vocabulary{}, err
		}
		have.tokens = other.tokens
	}
	v.loaded[key] = have
	return have, nil
}
