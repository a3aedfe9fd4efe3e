package tokenize

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dlclark/regexp2"
)

// maxFile is the largest vocabulary file, in bytes. The largest file of a model
// today has 33 MB.
const maxFile = 256 << 20

// Open returns the encoding in a tokenizer.json of Hugging Face's tokenizers library.
// path is the file or its model directory. For a damaged file or another kind of file,
// such as a rank file of tiktoken, the error is an ErrFormat. For another kind of
// tokenizer, such as SentencePiece, it is an ErrUnsupported that gives the reason.
func Open(path string) (*Encoding, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, "tokenizer.json")
	}
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	e, err := parseJSON(path, data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return e, nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open vocabulary: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read vocabulary: %w", err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: %w: the file has more than %d MB", path, ErrFormat, maxFile>>20)
	}
	return data, nil
}

// tokenizerFile is the content of a tokenizer.json. The format follows the serde implementations
// in github.com/huggingface/tokenizers. The decoder and the post-processor, which adds
// tokens around a whole prompt, are ignored.
type tokenizerFile struct {
	AddedTokens []struct {
		ID         int    `json:"id"`
		Content    string `json:"content"`
		SingleWord bool   `json:"single_word"`
		LStrip     bool   `json:"lstrip"`
		RStrip     bool   `json:"rstrip"`
		Special    bool   `json:"special"`
	} `json:"added_tokens"`
	Normalizer   *tokenizerComponent `json:"normalizer"`
	PreTokenizer *tokenizerComponent `json:"pre_tokenizer"`
	Model        *bpeModel           `json:"model"`
}

// tokenizerComponent is a normalizer or a pre-tokenizer. Its type says which fields
// apply.
type tokenizerComponent struct {
	Type          string               `json:"type"`
	Normalizers   []tokenizerComponent `json:"normalizers"`
	Pretokenizers []tokenizerComponent `json:"pretokenizers"`
	Pattern       struct {
		Regex  *string `json:"Regex"`
		String *string `json:"String"`
	} `json:"pattern"`
	Behavior         string `json:"behavior"`
	Invert           bool   `json:"invert"`
	AddPrefixSpace   *bool  `json:"add_prefix_space"`
	UseRegex         *bool  `json:"use_regex"`
	IndividualDigits bool   `json:"individual_digits"`
}

type bpeModel struct {
	Type         string          `json:"type"`
	Vocab        json.RawMessage `json:"vocab"`
	Merges       []mergePair     `json:"merges"`
	Dropout      float64         `json:"dropout"`
	Prefix       string          `json:"continuing_subword_prefix"`
	Suffix       string          `json:"end_of_word_suffix"`
	ByteFallback bool            `json:"byte_fallback"`
	IgnoreMerges bool            `json:"ignore_merges"`
}

// mergePair is a merge in tokenizer.json: written "a b", or ["a", "b"] since tokenizers
// 0.20.
type mergePair struct{ left, right string }

func (m *mergePair) UnmarshalJSON(data []byte) error {
	if data[0] == '[' {
		var pair []string
		if err := json.Unmarshal(data, &pair); err != nil {
			return err
		}
		if len(pair) != 2 {
			return fmt.Errorf("a merge has %d parts, not 2", len(pair))
		}
		m.left, m.right = pair[0], pair[1]
		return nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	var ok bool
	if m.left, m.right, ok = strings.Cut(text, " "); !ok {
		return fmt.Errorf("the merge %q has no space between its parts", text)
	}
	return nil
}

func parseJSON(name string, data []byte) (*Encoding, error) {
	var f tokenizerFile
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if f.Model == nil {
		return nil, fmt.Errorf("%w: the file has no model", ErrFormat)
	}
	nfc, err := f.Normalizer.isNFC()
	if err != nil {
		return nil, err
	}
	v, err := f.Model.buildVocabulary()
	if err != nil {
		return nil, err
	}
	stages, spaceFirst, err := f.PreTokenizer.buildSplitters()
	if err != nil {
		return nil, err
	}
	tokens := make([]addedToken, len(f.AddedTokens))
	for i, t := range f.AddedTokens {
		if t.Content == "" || t.ID < 0 {
			return nil, fmt.Errorf("%w: added token number %d, %q, has the id %d", ErrFormat, i, t.Content, t.ID)
		}
		tokens[i] = addedToken{t.Content, t.ID, t.Special, t.LStrip, t.RStrip, t.SingleWord}
	}
	e := newEncoding(name, v, stages, tokens)
	e.nfc, e.spaceFirst = nfc, spaceFirst
	return e, nil
}

// isNFC reports whether the normalizer is NFC or a sequence with NFC.
func (c *tokenizerComponent) isNFC() (nfc bool, err error) {
	switch {
	case c == nil:
		return false, nil
	case c.Type == "NFC":
		return true, nil
	case c.Type != "Sequence":
		return false, fmt.Errorf("%w: the normalizer %q: only NFC is known", ErrUnsupported, c.Type)
	}
	for i := range c.Normalizers {
		one, err := c.Normalizers[i].isNFC()
		if err != nil {
			return false, err
		}
		nfc = nfc || one
	}
	return nfc, nil
}

// buildSplitters returns the steps of the pre-tokenizer, in order. spaceFirst is true if texts
// get a leading space.
func (c *tokenizerComponent) buildSplitters() (stages []pieceSplitter, spaceFirst bool, err error) {
	if c == nil {
		return nil, false, fmt.Errorf("%w: the file has no pre-tokenizer, like a SentencePiece vocabulary: only byte-level BPE is known", ErrUnsupported)
	}
	parts := []tokenizerComponent{*c}
	if c.Type == "Sequence" {
		parts = c.Pretokenizers
	}
	byteLevel := false
	for _, part := range parts {
		var one pieceSplitter
		switch part.Type {
		case "ByteLevel":
			byteLevel = true
			if part.AddPrefixSpace == nil || *part.AddPrefixSpace {
				if len(stages) > 0 {
					return nil, false, fmt.Errorf("%w: ByteLevel with add_prefix_space after another pre-tokenizer", ErrUnsupported)
				}
				spaceFirst = true
			}
			if part.UseRegex == nil || *part.UseRegex {
				one = scannerFor(patternGPT2)
			}
		case "Split":
			one, err = part.buildSplitter()
		case "Digits":
			one = digitSplitter{part.IndividualDigits, classes()}
		default:
			err = fmt.Errorf("%w: the pre-tokenizer %q: only ByteLevel, Split and Digits are known", ErrUnsupported, part.Type)
		}
		if err != nil {
			return nil, false, err
		}
		if byteLevel && part.Type != "ByteLevel" {
			// The pattern would have to match the characters that represent bytes.
			return nil, false, fmt.Errorf("%w: the pre-tokenizer %q after ByteLevel", ErrUnsupported, part.Type)
		}
		if one != nil {
			stages = append(stages, one)
		}
	}
	if !byteLevel {
		return nil, false, fmt.Errorf("%w: no pre-tokenizer is ByteLevel", ErrUnsupported)
	}
	return stages, spaceFirst, nil
}

func (c *tokenizerComponent) buildSplitter() (pieceSplitter, error) {
	var pattern string
	switch {
	case c.Pattern.Regex != nil:
		pattern = *c.Pattern.Regex
	case c.Pattern.String != nil:
		pattern = regexp2.Escape(*c.Pattern.String)
	default:
		return nil, fmt.Errorf("%w: a Split has neither a Regex nor a String", ErrFormat)
	}
	// Patterns with a scanner match the whole text, so there is no text between two
	// matches.
	if c.Behavior == "Removed" && c.Invert && scannerFor(pattern) != nil {
		return newSplitter(pattern)
	}
	if c.Behavior != "Isolated" {
		return nil, fmt.Errorf("%w: a Split with the behavior %q: only Isolated is known", ErrUnsupported, c.Behavior)
	}
	return newSplitter(pattern)
}

func (m *bpeModel) buildVocabulary() (*vocabulary, error) {
	switch {
	case m.Type != "BPE" && (m.Type != "" || m.Merges == nil):
		return nil, fmt.Errorf("%w: the model is %q: only byte-level BPE is known", ErrUnsupported, cmp.Or(m.Type, "without a type"))
	case m.ByteFallback:
		return nil, fmt.Errorf("%w: the model uses byte fallback, as SentencePiece does: only byte-level BPE is known", ErrUnsupported)
	case m.Prefix != "" || m.Suffix != "":
		return nil, fmt.Errorf("%w: the model marks parts of words with %q", ErrUnsupported, m.Prefix+m.Suffix)
	case m.Dropout != 0:
		return nil, fmt.Errorf("%w: the model drops merges at random", ErrUnsupported)
	}
	var vocab map[string]int
	if err := json.Unmarshal(bytes.TrimSpace(m.Vocab), &vocab); err != nil {
		return nil, fmt.Errorf("%w: the model's vocab: %w", ErrFormat, err)
	}
	entries := make([]vocabularyEntry, 0, len(vocab))
	for key, id := range vocab {
		text, ok := decodeKeyBytes(key)
		entries = append(entries, vocabularyEntry{text: text, id: id, foreign: !ok})
	}
	slices.SortFunc(entries, func(a, b vocabularyEntry) int { return a.id - b.id })
	rules := make([]mergeRule, len(m.Merges))
	for i, pair := range m.Merges {
		left, okLeft := vocab[pair.left]
		right, okRight := vocab[pair.right]
		product, okProduct := vocab[pair.left+pair.right]
		if !okLeft || !okRight || !okProduct {
			return nil, fmt.Errorf("%w: merge %d, %q with %q, has a token that is not in the vocab", ErrFormat, i, pair.left, pair.right)
		}
		rules[i] = mergeRule{left, right, product}
	}
	return fromMerges(entries, rules, m.IgnoreMerges)
}

// byteCharacters has the character that represents each byte in a byte-level
// vocabulary: printable characters of Latin-1 represent themselves, and the characters
// from U+0100 on represent the other bytes (bytes_to_unicode in GPT-2's encoder.py).
var byteCharacters = func() (characters [256]rune) {
	next := rune(0x100)
	for b := range characters {
		if r := rune(b); r >= '!' && r <= '~' || r >= 0xA1 && r <= 0xAC || r >= 0xAE {
			characters[b] = r
		} else {
			characters[b] = next
			next++
		}
	}
	return characters
}()

// characterBytes is the inverse of byteCharacters: for each character the byte plus
// one, or 0 if the character represents no byte.
var characterBytes = func() (bytes [0x180]uint16) {
	for b, r := range byteCharacters {
		bytes[r] = uint16(b) + 1
	}
	return bytes
}()

// decodeKeyBytes returns the bytes that a vocabulary key represents. If the key has other
// characters, ok is false and text is the key itself.
func decodeKeyBytes(key string) (text string, ok bool) {
	bytes := make([]byte, 0, len(key))
	for _, r := range key {
		if int(r) >= len(characterBytes) || characterBytes[r] == 0 {
			return key, false
		}
		bytes = append(bytes, byte(characterBytes[r]-1))
	}
	return string(bytes), true
}
