package jobs

import (
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/input"
)

// tableRows reads CSV or Parquet as the service reads a URL's.
func (s *source) tableRows() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		rows, err := input.Open(s.file, s.size, input.Options{Column: s.column})
		if err != nil {
			yield("", fmt.Errorf("read %s: %w", s.name, err))
			return
		}
		defer func() { _ = rows.Close() }() // it was only read
		var row rowmill.Row
		for {
			err := rows.Next(&row)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield("", fmt.Errorf("read %s: %w", s.name, err))
				return
			}
			if !yield(row.Text, nil) {
				return
			}
		}
	}
}
