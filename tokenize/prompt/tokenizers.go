package prompt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rowmill/rowmill/tokenize"
)

// Tokenizers finds the vocabulary that a model names.
type Tokenizers struct {
	// Dir holds vocabularies beyond the built-in ones, as NAME.json or
	// NAME/tokenizer.json in the form of Hugging Face. Empty for none.
	Dir string
}

// Find loads a vocabulary, which takes a fraction of a second: keep it. Where
// there is none it returns nil, and what an operator should do about it. A file
// that is no vocabulary, or one of a kind that we cannot count with, is an error
// that names the file.
func (t Tokenizers) Find(name string) (enc *tokenize.Encoding, warning string, err error) {
	if name == "" {
		return nil, "the model names no tokenizer: its tokens are estimated", nil
	}
	if enc, err := tokenize.Load(name); !errors.Is(err, tokenize.ErrUnknown) {
		return enc, "", err
	}
	if t.Dir == "" {
		return nil, fmt.Sprintf("tokenizer %s is not built in and no tokenizers directory is set: "+
			"name a directory with %s.json for exact counts; until then they are estimated", name, name), nil
	}
	flat, folder := filepath.Join(t.Dir, name+".json"), filepath.Join(t.Dir, name, "tokenizer.json")
	for _, path := range []string{flat, folder} {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		enc, err := tokenize.Open(path)
		if err != nil {
			return nil, "", fmt.Errorf("tokenizer %s: %w; replace the file, or remove it to have tokens estimated", name, err)
		}
		return enc, "", nil
	}
	return nil, fmt.Sprintf("tokenizer %s: there is neither %s nor %s: copy the model's tokenizer.json there for exact counts; until then they are estimated",
		name, flat, folder), nil
}
