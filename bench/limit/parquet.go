package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/parquet-go/parquet-go"
)

// rowGroupRows is the size of the result's row groups, DuckDB's default.
const rowGroupRows = 122_880

// input reads the columns id and text of a Parquet file in batches.
type input struct {
	file   *os.File
	reader *parquet.GenericReader[inRow]
	buffer []inRow
	first  int64
}

type inRow struct {
	ID   int64  `parquet:"id"`
	Text []byte `parquet:"text,string"`
}

func openInput(path string) (*input, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open input: %w", err)
	}
	reader := parquet.NewGenericReader[inRow](file)
	return &input{file: file, reader: reader, buffer: make([]inRow, batchRows)}, nil
}

// next returns the next batch, or nil at the end of the file.
func (in *input) next() (*batch, error) {
	n, err := in.reader.Read(in.buffer)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read input after row %d: %w", in.first, err)
	}
	if n == 0 {
		return nil, nil
	}
	b := &batch{first: in.first, ids: make([]int64, n), texts: make([][]byte, n)}
	for i, row := range in.buffer[:n] {
		b.ids[i] = row.ID
		b.texts[i] = append([]byte(nil), row.Text...) // the reader may reuse its pages
	}
	in.first += int64(n)
	return b, nil
}

func (in *input) close() {
	_ = in.reader.Close() // an error does not matter after a read
	in.file.Close()
}

// output writes rows with their answers.
type output struct {
	file   *os.File
	writer *parquet.GenericWriter[outRow]
	buffer []outRow
	rows   int64
}

// outRow has the columns of the service's full result.
type outRow struct {
	ID     int64   `parquet:"id"`
	Inputs []byte  `parquet:"inputs,string,plain"`
	Output string  `parquet:"output,plain"`
	Score  float64 `parquet:"cumulative_logprobs"`
}

func createOutput(path string) (*output, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("create output: %w", err)
	}
	writer := parquet.NewGenericWriter[outRow](file,
		parquet.Compression(&parquet.Snappy), parquet.MaxRowsPerRowGroup(rowGroupRows))
	return &output{file: file, writer: writer, buffer: make([]outRow, batchRows)}, nil
}

func (out *output) write(b *batch) error {
	for i := range b.texts {
		out.buffer[i] = outRow{ID: b.ids[i], Inputs: b.texts[i], Output: b.answers[i].text, Score: b.answers[i].score}
	}
	n, err := out.writer.Write(out.buffer[:len(b.texts)])
	out.rows += int64(n)
	if err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	return nil
}

// commit completes the result and makes it durable.
func (out *output) commit() error {
	if err := out.writer.Close(); err != nil {
		return fmt.Errorf("finish result: %w", err)
	}
	if err := out.file.Sync(); err != nil {
		return fmt.Errorf("flush result: %w", err)
	}
	return nil
}

func (out *output) close() { out.file.Close() }
