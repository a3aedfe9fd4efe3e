package main

import (
	"fmt"
	"sync"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/tokenize/prompt"
)

// standIn counts for models whose own vocabulary is not at hand: modern
// vocabularies differ by a few percent on most texts, and what servers report
// corrects for that.
const standIn = "o200k_base"

// vocabularies finds and keeps the tokenizers of models. It is safe for
// concurrent use.
type vocabularies struct {
	find prompt.Tokenizers

	mu     sync.Mutex
	loaded map[[2]string]vocabulary // by names of tokenizer and template
}

type vocabulary struct {
	tokens  prompt.Tokenizer
	warning string
}

func newVocabularies(dir string) *vocabularies {
	return &vocabularies{find: prompt.Tokenizers{Dir: dir}, loaded: make(map[[2]string]vocabulary)}
}

// check loads the vocabularies of all models from the operator's directory, so
// that a damaged file is found at start and not by the first job.
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

// tokenizer returns the tokenizer of a model. A warning says that another one
// stands in for it.
func (v *vocabularies) tokenizer(m rowmill.Model) (prompt.Tokenizer, string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	key := [2]string{m.Tokenizer, m.Template}
	if have, ok := v.loaded[key]; ok {
		return have.tokens, have.warning, nil
	}
	template, err := prompt.Find(m.Template)
	if err != nil {
		return nil, "", err
	}
	encoding, warning, err := v.find.Find(m.Tokenizer)
	if err != nil {
		return nil, "", err
	}
	if encoding == nil {
		if encoding, _, err = v.find.Find(standIn); err != nil {
			return nil, "", fmt.Errorf("load %s: %w", standIn, err)
		}
	}
	have := vocabulary{tokens: template.Encoding(encoding), warning: warning}
	v.loaded[key] = have
	return have.tokens, have.warning, nil
}
