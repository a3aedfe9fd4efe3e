package input_test

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/input"
)

// Open detects the format from the content: here CSV, and also gzip and
// Parquet.
func ExampleOpen() {
	file := strings.NewReader("id,text\n17,\"Hello, world\"\n18,Good night\n")
	rows, err := input.Open(file, file.Size(), input.Options{Column: "text", IDColumn: "id"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rows.Close()
	for {
		var row rowmill.Row
		if err := rows.Next(&row); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%d %s %q\n", row.Index, row.ID.Text, row.Text)
	}
	// Output:
	// 0 17 "Hello, world"
	// 1 18 "Good night"
}

// Errors of a file are written for the person who made it, and name the remedy.
func ExampleOpen_wrong() {
	file := strings.NewReader("id,text\n17,Hello\n")
	_, err := input.Open(file, file.Size(), input.Options{Column: "Text"})
	var failure *rowmill.Failure
	fmt.Println(errors.As(err, &failure))
	fmt.Println(err)
	// Output:
	// true
	// The input file has no column "Text", which column_name names. Did you mean "text"? It has the columns "id", "text".
}
