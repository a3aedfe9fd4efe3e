package tokenize

import (
	"bytes"
	"encoding/base64"
	"errors"
	"flag"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/pkoukk/tiktoken-go-loader/assets"

	"github.com/rowmill/rowmill/internal/must"
)

var update = flag.Bool("update", false, "write the rank files")

// published returns a rank file as it was published.
func published(t testing.TB, file string) []byte {
	t.Helper()
	data := must.Get(assets.Assets.ReadFile(file + ".tiktoken"))(t)
	return data
}

// parseRanks reads a published rank file. Each line has a token in base64, a space
// and the token's rank.
func parseRanks(data []byte) (entries []vocabularyEntry, err error) {
	for line := range bytes.Lines(data) {
		token, rank, _ := bytes.Cut(bytes.TrimSpace(line), []byte{' '})
		text, tokenErr := base64.StdEncoding.DecodeString(string(token))
		id, rankErr := strconv.Atoi(string(rank))
		entries, err = append(entries, vocabularyEntry{text: string(text), id: id}), errors.Join(err, tokenErr, rankErr)
	}
	return entries, err
}

// openRanks returns the encoding of a published rank file. The file does not
// contain the pattern and special tokens.
func openRanks(t testing.TB, data []byte, pattern string, specials map[string]int) *Encoding {
	t.Helper()
	entries, err := parseRanks(data)
	v, buildErr := fromRanks(entries)
	must.Succeed(t, errors.Join(err, buildErr))
	e, err := rankEncoding("ranks", v, pattern, specials)
	must.Succeed(t, err)
	return e
}

// TestRankFiles compares the built-in rank files with the published files, and
// expects no others.
func TestRankFiles(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	files := []string{"o200k_base", "cl100k_base"}
	for _, file := range files {
		entries := must.Get(parseRanks(published(t, file)))(t)
		var lengths, tokens []byte
		for rank, e := range entries {
			if e.id != rank || len(e.text) == 0 || len(e.text) > 255 {
				t.Fatalf("token %d has the rank %d and %d bytes", rank, e.id, len(e.text))
			}
			lengths, tokens = append(lengths, byte(len(e.text))), append(tokens, e.text...)
		}
		want := slices.Concat(lengths, []byte{0}, tokens)
		if *update {
			must.Succeed(t, os.WriteFile("ranks/"+file, want, 0o600))
			t.Errorf("pack it with zstd --ultra -22 --rm ranks/%s", file)
			continue
		}
		if got, err := decompressRanks(file); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, error %v; published were %d other bytes", file, len(got), err, len(want))
		}
	}
	if there, err := rankFiles.ReadDir("ranks"); err != nil || len(there) != len(files) {
		t.Errorf("%d rank files, error %v; needed are %d", len(there), err, len(files))
	}
}

// FuzzRanks searches for rank files from which building a vocabulary panics.
func FuzzRanks(f *testing.F) {
	f.Add([]byte("YQ== 0\n"))
	f.Add([]byte("YQ== 0\r\nYWI= 1"))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, _ := parseRanks(data) // wrong lines are wrong entries
		for i := range 256 {
			entries = append(entries, vocabularyEntry{text: string([]byte{byte(i)}), id: 1000 + i})
		}
		if _, err := fromRanks(entries); err != nil && !errors.Is(err, ErrFormat) {
			t.Fatal(err)
		}
	})
}
