// Command show prints the contents of a Parquet file: its size, its columns with their
// types, and its first rows. Use it on machines without Python and pandas.
//
//	go run ./examples/show FILE [ROWS]
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/rowmill/rowmill/internal/columnar"
)

// width is the largest number of characters that are printed for a value.
const width = 100

func main() {
	rows := 3
	if len(os.Args) == 3 {
		n, err := strconv.Atoi(os.Args[2])
		if err != nil || n < 0 {
			exitWithError("ROWS must be a number from 0, not %q", os.Args[2])
		}
		rows = n
	} else if len(os.Args) != 2 {
		exitWithError("usage: show FILE [ROWS]")
	}
	if err := showFile(os.Stdout, os.Args[1], rows); err != nil {
		exitWithError("%v", err)
	}
}

func exitWithError(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "show: "+format+"\n", args...)
	os.Exit(1)
}

func showFile(w io.Writer, path string, rows int) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	table, err := columnar.Open(file, info.Size(), columnar.Limits{})
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}

	fmt.Fprintf(w, "%s: %d rows, %d bytes\n\n", path, table.NumRows(), info.Size())
	positions := make([]int, len(table.Columns()))
	for i, column := range table.Columns() {
		positions[i] = i
		fmt.Fprintf(w, "  %-44s %s\n", column.Name, column.Type)
	}
	values := table.Rows(positions...)
	defer func() { _ = values.Close() }() // the values were read, so an error of Close does not matter
	for n := range rows {
		if err := values.Next(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		fmt.Fprintf(w, "\nrow %d\n", n)
		for i, column := range table.Columns() {
			text, err := values.Text(i)
			if err != nil {
				return fmt.Errorf("read %s: %w", path, err)
			}
			fmt.Fprintf(w, "  %-44s %s\n", column.Name, clip(text))
		}
	}
	return nil
}

// clip shortens a value to width characters on one line.
func clip(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > width {
		return string(runes[:width]) + "…"
	}
	return text
}
