package tokenize

import (
	"bytes"
	"embed"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// builtInEncoding is an encoding with a rank file in this program. Patterns and
// special tokens come from tiktoken_ext/openai_public.py in tiktoken.
type builtInEncoding struct {
	file     string
	pattern  string
	specials func() map[string]int
}

var builtInEncodings = map[string]builtInEncoding{
	"o200k_base":    {"o200k_base", patternO200K, o200kSpecials},
	"o200k_harmony": {"o200k_base", patternO200K, harmonySpecials},
	"cl100k_base": {"cl100k_base", patternCL100K, func() map[string]int {
		return map[string]int{
			"<|endoftext|>": 100257, "<|fim_prefix|>": 100258, "<|fim_middle|>": 100259, "<|fim_suffix|>": 100260,
			"<|endofprompt|>": 100276,
		}
	}},
}

// rankFiles are the files of tiktoken, unchanged but compressed with zstd.
// TestRankFiles compares them with the originals and, with -update, writes
// them.
//
//go:embed ranks/*.zst
var rankFiles embed.FS

func o200kSpecials() map[string]int {
	return map[string]int{"<|endoftext|>": 199999, "<|endofprompt|>": 200018}
}

// harmonySpecials returns the special tokens of gpt-oss. 200018 has two names.
func harmonySpecials() map[string]int {
	specials := map[string]int{
		"<|startoftext|>": 199998, "<|endoftext|>": 199999, "<|return|>": 200002, "<|constrain|>": 200003,
		"<|channel|>": 200005, "<|start|>": 200006, "<|end|>": 200007, "<|message|>": 200008, "<|call|>": 200012,
		"<|endofprompt|>": 200018,
	}
	for _, id := range []int{200000, 200001, 200004, 200009, 200010, 200011} {
		specials[reserved(id)] = id
	}
	for id := 200013; id < 201088; id++ {
		specials[reserved(id)] = id
	}
	return specials
}

func reserved(id int) string { return "<|reserved_" + strconv.Itoa(id) + "|>" }

// encodings returns the names that Load knows, sorted.
func encodings() []string { return slices.Sorted(maps.Keys(builtInEncodings)) }

var (
	loading sync.Mutex
	loaded  = make(map[string]*Encoding)
	read    = make(map[string]*vocabulary) // by rank file
)

// Load returns an encoding by its name, see the package comment. The first call
// for a rank file decodes it; the package comment gives the cost. For other
// names the error is ErrUnknown.
func Load(name string) (*Encoding, error) {
	from, ok := builtInEncodings[name]
	if !ok {
		return nil, fmt.Errorf("%w %q: there are %s, and any other vocabulary by the path of its file", ErrUnknown, name, strings.Join(encodings(), ", "))
	}
	loading.Lock()
	defer loading.Unlock()
	if e, ok := loaded[name]; ok {
		return e, nil
	}
	v, ok := read[from.file]
	if !ok {
		data, err := unpack(from.file)
		if err != nil {
			return nil, fmt.Errorf("read the ranks of %s: %w", from.file, err)
		}
		if v, err = rankVocabulary(data); err != nil {
			return nil, fmt.Errorf("ranks of %s: %w", from.file, err)
		}
		read[from.file] = v
	}
	e, err := rankEncoding(name, v, from.pattern, from.specials())
	if err != nil {
		return nil, err
	}
	loaded[name] = e
	return e, nil
}

// unpack returns a rank file of this program.
func unpack(file string) ([]byte, error) {
	packed, err := rankFiles.ReadFile("ranks/" + file + ".tiktoken.zst")
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

func rankVocabulary(data []byte) (*vocabulary, error) {
	entries, err := parseRanks(data)
	if err != nil {
		return nil, err
	}
	return fromRanks(entries)
}

func rankEncoding(name string, v *vocabulary, pattern string, specials map[string]int) (*Encoding, error) {
	first, err := stageFor(pattern)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	tokens := make([]addedToken, 0, len(specials))
	for text, id := range specials {
		if text == "" {
			return nil, fmt.Errorf("%s: %w: the special token %d has no name", name, ErrFormat, id)
		}
		tokens = append(tokens, addedToken{text: text, id: id, special: true})
	}
	slices.SortFunc(tokens, func(a, b addedToken) int { return strings.Compare(b.text, a.text) })
	return newEncoding(name, v, []stage{first}, tokens), nil
}

// parseRanks reads a rank file. Each line has a token in base64 and its rank.
func parseRanks(data []byte) ([]entry, error) {
	lines := bytes.Count(data, []byte{'\n'}) + 1
	entries := make([]entry, 0, lines)
	// One string holds all tokens, so that the garbage collector has fewer objects.
	var all []byte
	ends := make([]int, 0, lines)
	for number := 1; len(data) > 0; number++ {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte{'\n'})
		line = bytes.TrimSuffix(line, []byte{'\r'})
		if len(line) == 0 {
			continue
		}
		code, rank, ok := bytes.Cut(line, []byte{' '})
		if !ok {
			return nil, fmt.Errorf("%w: line %d is not a token in base64, a space and a rank: it may be cut off", ErrFormat, number)
		}
		var err error
		if all, err = base64.StdEncoding.AppendDecode(all, code); err != nil {
			return nil, fmt.Errorf("%w: line %d: the token: %w", ErrFormat, number, err)
		}
		id, err := strconv.Atoi(string(rank))
		if err != nil {
			return nil, fmt.Errorf("%w: line %d: the rank: %w", ErrFormat, number, err)
		}
		entries = append(entries, entry{id: id})
		ends = append(ends, len(all))
	}
	if len(entries) == 0 {
		return nil, fmt.Errorf("%w: the file has no tokens", ErrFormat)
	}
	text, begin := string(all), 0
	for i, end := range ends {
		entries[i].text = text[begin:end]
		begin = end
	}
	slices.SortStableFunc(entries, func(a, b entry) int { return a.id - b.id })
	return entries, nil
}
