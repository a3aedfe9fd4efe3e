package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/parquet-go/parquet-go"
)

// dataset is a Parquet file of generated rows: real words in random order, so that
// texts are distinct and compress like text.
type dataset struct {
	rows  int64
	bytes int // size of each text, up to a word
	seed  uint64

	// answers is the mean length in tokens of the answers that the texts request from a
	// simulated server; 0 leaves the length to the server.
	answers float64
}

// answerSpread is the standard deviation of the logarithm of answer lengths, as in the
// simulator.
const answerSpread = 0.6

type dataRow struct {
	ID   int64  `parquet:"id"`
	Text []byte `parquet:"text,string,plain"`
}

// vocabulary is the file of the words, relative to the repository's root.
const vocabulary = "examples/dictionary.csv"

// make writes the data set into dir, unless it exists, and returns its path.
func (d dataset) make(dir string) (string, error) {
	name := fmt.Sprintf("rows-%d-%db-%d", d.rows, d.bytes, d.seed)
	if d.answers > 0 {
		name += fmt.Sprintf("-%.0ft", d.answers)
	}
	path := filepath.Join(dir, name+".parquet")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	} else if !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("look for data set: %w", err)
	}
	words, err := readWords()
	if err != nil {
		return "", err
	}
	return path, writeRows(path, d.rows, d.texts(words))
}

// texts returns a function that appends the text of a row to a slice. Call it for rows
// in order.
func (d dataset) texts(words []string) func(text []byte, row int64) []byte {
	random, lengths := rand.New(rand.NewPCG(d.seed, 0)), rand.New(rand.NewPCG(d.seed, 1))
	return func(text []byte, i int64) []byte {
		text = fmt.Appendf(text, "Row %d.", i)
		if d.answers > 0 {
			median := d.answers * math.Exp(-answerSpread*answerSpread/2)
			text = fmt.Appendf(text, " [[sim:tokens=%.0f]]", max(1, median*math.Exp(answerSpread*lengths.NormFloat64())))
		}
		for len(text) < d.bytes {
			text = append(append(text, ' '), words[random.IntN(len(words))]...)
		}
		return text
	}
}

// writeRows writes a Parquet file; text appends the text of a row to an empty slice.
func writeRows(path string, rows int64, appendText func(text []byte, row int64) []byte) error {
	file, err := os.Create(path + ".part")
	if err != nil {
		return fmt.Errorf("create data set: %w", err)
	}
	defer file.Close()
	writer := parquet.NewGenericWriter[dataRow](file,
		parquet.Compression(&parquet.Snappy), parquet.MaxRowsPerRowGroup(50_000))
	var text []byte
	for i := range rows {
		text = appendText(text[:0], i)
		if _, err := writer.Write([]dataRow{{ID: i, Text: text}}); err != nil {
			return fmt.Errorf("write data set: %w", err)
		}
	}
	if err := writer.Close(); err != nil {
		return fmt.Errorf("finish data set: %w", err)
	}
	return os.Rename(path+".part", path)
}

// readWords returns the headwords of the sample input.
func readWords() ([]string, error) {
	file, err := os.Open(vocabulary)
	if err != nil {
		return nil, fmt.Errorf("open vocabulary (run from the repository's root): %w", err)
	}
	defer file.Close()
	records, err := csv.NewReader(file).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read vocabulary: %w", err)
	}
	words := make([]string, 0, len(records))
	for _, record := range records[1:] {
		words = append(words, record[1])
	}
	return words, nil
}
