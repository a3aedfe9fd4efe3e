package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/parquet-go/parquet-go"
)

// checkResult reads a result and returns an error unless its ids are 0 to rows-1 in
// order and every row has an output: a contender that loses or mixes up rows gets no
// figure.
func checkResult(path, outputColumn string, rows int64) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open result: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("open result: %w", err)
	}
	result, err := parquet.OpenFile(file, info.Size())
	if err != nil {
		return fmt.Errorf("open result: %w", err)
	}
	id, output, err := findColumns(result.Schema(), outputColumn)
	if err != nil {
		return err
	}
	ids, outputs := int64(0), int64(0)
	for _, group := range result.RowGroups() {
		chunks := group.ColumnChunks()
		err := eachValue(chunks[id], func(v parquet.Value) error {
			if v.String() != strconv.FormatInt(ids, 10) { // ids of a CSV file are texts
				return fmt.Errorf("row %d has the id %s", ids, v)
			}
			ids++
			return nil
		})
		if err != nil {
			return err
		}
		err = eachValue(chunks[output], func(v parquet.Value) error {
			if v.RepetitionLevel() > 0 {
				return nil // another element of a list
			}
			if v.IsNull() { // an empty answer is valid
				return fmt.Errorf("row %d has no output", outputs)
			}
			outputs++
			return nil
		})
		if err != nil {
			return err
		}
	}
	if ids != rows || outputs != rows {
		return fmt.Errorf("result has %d ids and %d outputs, want %d", ids, outputs, rows)
	}
	return nil
}

// findColumns returns the leaf numbers of the columns id and output.
func findColumns(schema *parquet.Schema, outputColumn string) (id, output int, err error) {
	id, output = -1, -1
	for i, path := range schema.Columns() {
		switch path[0] {
		case "id":
			id = i
		case outputColumn:
			output = i
		}
	}
	if id < 0 || output < 0 {
		return 0, 0, fmt.Errorf("result lacks column id or %s: %v", outputColumn, schema.Columns())
	}
	return id, output, nil
}

// eachValue calls visit for every value of a column chunk.
func eachValue(chunk parquet.ColumnChunk, visit func(parquet.Value) error) error {
	pages := chunk.Pages()
	defer pages.Close()
	values := make([]parquet.Value, 1024)
	for {
		page, err := pages.ReadPage()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read result: %w", err)
		}
		reader := page.Values()
		for {
			n, err := reader.ReadValues(values)
			for _, v := range values[:n] {
				if err := visit(v); err != nil {
					return err
				}
			}
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return fmt.Errorf("read result: %w", err)
			}
		}
		parquet.Release(page)
	}
}
