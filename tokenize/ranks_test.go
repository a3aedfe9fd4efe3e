package tokenize

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/pkoukk/tiktoken-go-loader/assets"
)

var update = flag.Bool("update", false, "write the compressed rank files")

// published returns a rank file as it was published.
func published(t testing.TB, file string) []byte {
	t.Helper()
	data, err := assets.Assets.ReadFile(file + ".tiktoken")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// openRanks returns the encoding of a rank file. The file does not contain the
// pattern and special tokens.
func openRanks(data []byte, pattern string, specials map[string]int) (*Encoding, error) {
	v, err := rankVocabulary(data)
	if err != nil {
		return nil, err
	}
	return rankEncoding("ranks", v, pattern, specials)
}

// TestRankFiles compares the built-in rank files with the published files byte
// by byte, and expects no others.
func TestRankFiles(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	files := make(map[string]bool)
	for _, e := range builtInEncodings {
		files[e.file] = true
	}
	for file := range files {
		want := published(t, file)
		if *update {
			w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile("ranks/"+file+".tiktoken.zst", w.EncodeAll(want, nil), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if got, err := unpack(file); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, error %v; published were %d other bytes", file, len(got), err, len(want))
		}
	}
	if there, err := rankFiles.ReadDir("ranks"); err != nil || len(there) != len(files) {
		t.Errorf("%d rank files, error %v; needed are %d", len(there), err, len(files))
	}
}

// FuzzRanks searches for rank files that make the reader panic.
func FuzzRanks(f *testing.F) {
	f.Add([]byte("YQ== 0\n"))
	f.Add([]byte("YQ== 0\r\nYWI= 1"))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := parseRanks(data)
		if err != nil && !errors.Is(err, ErrFormat) {
			t.Fatal(err)
		}
		for i := range 256 {
			entries = append(entries, entry{text: string([]byte{byte(i)}), id: 1000 + i})
		}
		if _, err := fromRanks(entries); err != nil && !errors.Is(err, ErrFormat) {
			t.Fatal(err)
		}
	})
}
