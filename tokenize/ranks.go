package tokenize

import (
	"bytes"
	"embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// builtIn has the functions that make the encodings whose rank file is in this program.
// Each encoding is made once. Patterns and special tokens come from
// tiktoken_ext/openai_public.py in tiktoken.
var builtIn = map[string]func() (*Encoding, error){
	"o200k_base":    lazyEncoding("o200k_base", o200kRanks, patternO200K, o200kSpecials),
	"o200k_harmony": lazyEncoding("o200k_harmony", o200kRanks, patternO200K, harmonySpecials),
	"cl100k_base":   lazyEncoding("cl100k_base", cl100kRanks, patternCL100K, cl100kSpecials),
}

var o200kRanks, cl100kRanks = rankLoader("o200k_base"), rankLoader("cl100k_base")

func lazyEncoding(name string, ranks func() (*vocabulary, error), pattern string, specials func() map[string]int) func() (*Encoding, error) {
	return sync.OnceValues(func() (*Encoding, error) {
		v, err := ranks()
		if err != nil {
			return nil, err
		}
		return rankEncoding(name, v, pattern, specials())
	})
}

// rankLoader returns a function that reads a rank file at its first call and returns
// the same vocabulary at later calls.
func rankLoader(file string) func() (*vocabulary, error) {
	return sync.OnceValues(func() (*vocabulary, error) {
		data, err := decompressRanks(file)
		if err != nil {
			return nil, fmt.Errorf("read the ranks of %s: %w", file, err)
		}
		return rankVocabulary(data)
	})
}

// rankFiles has the tokens of tiktoken's rank files: the length of each token as one
// byte, a zero byte, and then the tokens themselves, all in the order of the ranks and
// compressed with zstd. TestRankFiles compares these files with the original files and,
// with -update, writes them.
//
//go:embed ranks/*.zst
var rankFiles embed.FS

func cl100kSpecials() map[string]int {
	return map[string]int{
		"<|endoftext|>": 100257, "<|fim_prefix|>": 100258, "<|fim_middle|>": 100259, "<|fim_suffix|>": 100260,
		"<|endofprompt|>": 100276,
	}
}

func o200kSpecials() map[string]int {
	return map[string]int{"<|endoftext|>": 199999, "<|endofprompt|>": 200018}
}

// harmonySpecials returns the special tokens of gpt-oss. The ID 200018 has two names.
func harmonySpecials() map[string]int {
	specials := map[string]int{
		"<|startoftext|>": 199998, "<|endoftext|>": 199999, "<|return|>": 200002, "<|constrain|>": 200003,
		"<|channel|>": 200005, "<|start|>": 200006, "<|end|>": 200007, "<|message|>": 200008, "<|call|>": 200012,
		"<|endofprompt|>": 200018,
	}
	for _, id := range []int{200000, 200001, 200004, 200009, 200010, 200011} {
		specials[reservedTokenName(id)] = id
	}
	for id := 200013; id < 201088; id++ {
		specials[reservedTokenName(id)] = id
	}
	return specials
}

func reservedTokenName(id int) string { return "<|reserved_" + strconv.Itoa(id) + "|>" }

// encodings returns the names that Load knows, sorted.
func encodings() []string { return slices.Sorted(maps.Keys(builtIn)) }

// Load returns a built-in encoding by its name; the package comment lists the names.
// The first call for a rank file decodes it; the package comment gives the cost. For
// other names the error is ErrUnknown.
func Load(name string) (*Encoding, error) {
	load, ok := builtIn[name]
	if !ok {
		return nil, fmt.Errorf("%w %q: there are %s, and any other vocabulary by the path of its file", ErrUnknown, name, strings.Join(encodings(), ", "))
	}
	return load()
}

// decompressRanks returns the decompressed content of a rank file in this program.
func decompressRanks(file string) ([]byte, error) {
	packed, err := rankFiles.ReadFile("ranks/" + file + ".zst")
	if err != nil {
		return nil, err
	}
	r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.DecodeAll(packed, nil)
}

// rankVocabulary builds the vocabulary of an unpacked rank file.
func rankVocabulary(data []byte) (*vocabulary, error) {
	lengths, tokens, _ := bytes.Cut(data, []byte{0})
	entries, all := make([]vocabularyEntry, len(lengths)), string(tokens)
	for rank, n := range lengths {
		entries[rank], all = vocabularyEntry{text: all[:n], id: rank}, all[n:]
	}
	return fromRanks(entries)
}

func rankEncoding(name string, v *vocabulary, pattern string, specials map[string]int) (*Encoding, error) {
	first, err := newSplitter(pattern)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	tokens := make([]addedToken, 0, len(specials))
	for text, id := range specials {
		tokens = append(tokens, addedToken{text: text, id: id, special: true})
	}
	slices.SortFunc(tokens, func(a, b addedToken) int { return strings.Compare(b.text, a.text) })
	return newEncoding(name, v, []pieceSplitter{first}, tokens), nil
}
