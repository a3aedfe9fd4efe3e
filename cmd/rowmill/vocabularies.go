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

// standIn is the tokenizer that replaces the vocabulary that a node does not have. Modern
// vocabularies differ by a few percent on most texts, and the counts that servers
// report correct the rest.
const standIn = "o200k_base"

// vocabularies finds and keeps the tokenizers of models. It is safe for
// concurrent use.
type vocabularies struct {
	find prompt.Tokenizers

	mu     sync.Mutex
	loaded map[[3]string]vocabulary // by the names of tokenizer and template, and of the model if it names no tokenizer
}

type vocabulary struct {
	tokens  prompt.Tokenizer
	warning string
}

func newVocabularies(dir string) *vocabularies {
	return &vocabularies{find: prompt.Tokenizers{Dir: dir}, loaded: make(map[[3]string]vocabulary)}
}

// check loads the vocabularies of all models in the operator's directory, so that a
// damaged file fails the start, and not the first job.
func (v *vocabularies) check(models []rowmill.Model) error {
	if v.find.Dir == "" {
		return nil
	}
	for _, m := range models {
		if _, _, err := v.tokenizer(m); err != nil {
			return fmt.Errorf("model %s: %w", m.ID, err)
		}
	}
	return nil
}

// mostWarm limits how many vocabularies of a server are loaded before a job needs them.
// A server with more models is a gateway.
const mostWarm = 8

// warm loads the vocabularies of served models. It ignores errors: the first job of the
// model reports them.
func (v *vocabularies) warm(known *catalog.Catalog, served []engine.ServedModel) {
	for _, s := range served[:min(len(served), mostWarm)] {
		models := known.ByEngineName(s.Name)
		if m, found := known.Find(s.Name); found {
			models = append(models, m)
		}
		if len(models) == 0 {
			models = []rowmill.Model{{ID: s.Name}}
		}
		for _, m := range models {
			_, _, _ = v.tokenizer(m)
		}
	}
}

// tokenizer returns the tokenizer of a model. The warning is set if another tokenizer
// replaces it.
func (v *vocabularies) tokenizer(m rowmill.Model) (prompt.Tokenizer, string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	have, err := v.vocabulary(m)
	return have.tokens, have.warning, err
}

func (v *vocabularies) vocabulary(m rowmill.Model) (vocabulary, error) {
	key := [3]string{m.Tokenizer, m.Template}
	if m.Tokenizer == "" {
		key[2] = m.ID
	}
	if have, ok := v.loaded[key]; ok {
		return have, nil
	}
	template, err := prompt.Find(m.Template)
	if err != nil {
		return vocabulary{}, err
	}
	var have vocabulary
	var encoding *tokenize.Encoding
	if m.Tokenizer == "" {
		encoding, have.warning = v.find.FindOf(m.ID)
	} else {
		encoding, have.warning, err = v.find.Find(m.Tokenizer)
	}
	switch {
	case err != nil:
		return vocabulary{}, err
	case encoding != nil:
		have.tokens = template.Encoding(encoding)
	case m.Tokenizer == standIn:
		return vocabulary{}, fmt.Errorf("load %s: %s", standIn, have.warning)
	default: // all models without their own vocabulary share one
		other, err := v.vocabulary(rowmill.Model{Tokenizer: standIn, Template: m.Template})
		if err != nil {
			return vocabulary{}, err
		}
		have.tokens = other.tokens
	}
	v.loaded[key] = have
	return have, nil
}
