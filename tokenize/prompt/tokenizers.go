package prompt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/rowmill/rowmill/tokenize"
)

// Tokenizers finds the vocabulary of a model, by the name of the tokenizer.
type Tokenizers struct {
	// Dir is a folder with more vocabularies than the built-in ones, as NAME.json or
	// NAME/tokenizer.json in Hugging Face's form. Empty means no folder.
	Dir string
}

// Find loads the vocabulary with this name. This takes a fraction of a second, so keep
// the result. If there is none, it returns nil and a warning that tells an operator
// what to do. If a file is not a vocabulary, or its kind is not supported, the error
// names the file.
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
	if enc, err := t.open(name); enc != nil || err != nil {
		return enc, "", err
	}
	flat, folder := t.paths(name)
	return nil, fmt.Sprintf("tokenizer %s: there is neither %s nor %s: copy the model's tokenizer.json there for exact counts; until then they are estimated",
		name, flat, folder), nil
}

// FindForModel loads the vocabulary of a model that names no tokenizer. It uses a file with
// the model's name, with or without the organisation. If the file cannot be used, it
// returns a warning, and the model's tokens are counted without a vocabulary.
func (t Tokenizers) FindForModel(id string) (enc *tokenize.Encoding, warning string) {
	segments := strings.Split(id, "/")
	own := segments[len(segments)-1]
	for _, s := range segments {
		if !segment.MatchString(s) {
			return nil, fmt.Sprintf("the model %q names no tokenizer, and its name cannot be a file name: its tokens are estimated", id)
		}
	}
	if t.Dir == "" {
		return nil, fmt.Sprintf("no vocabulary of %s is known and no tokenizers directory is set: "+
			"name a directory with %s.json, the model's tokenizer.json; until then its tokens are estimated", id, own)
	}
	for _, name := range []string{filepath.Join(segments...), own} {
		if enc, err := t.open(name); err != nil {
			return nil, err.Error()
		} else if enc != nil {
			return enc, ""
		}
	}
	_, folder := t.paths(filepath.Join(segments...))
	return nil, fmt.Sprintf("no vocabulary of %s is known: copy the model's tokenizer.json to %s; until then its tokens are estimated", id, folder)
}

// segment matches a part of a model's ID that can be a file name.
var segment = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// paths returns the two possible paths of a vocabulary file.
func (t Tokenizers) paths(name string) (flat, folder string) {
	return filepath.Join(t.Dir, name+".json"), filepath.Join(t.Dir, name, "tokenizer.json")
}

// open loads a vocabulary from the directory, or returns nil if there is none.
func (t Tokenizers) open(name string) (*tokenize.Encoding, error) {
	flat, folder := t.paths(name)
	for _, path := range []string{flat, folder} {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		enc, err := tokenize.Open(path)
		if err != nil {
			return nil, fmt.Errorf("tokenizer %s: %w; replace the file, or remove it to have tokens estimated", name, err)
		}
		return enc, nil
	}
	return nil, nil
}
