package results_test

import (
	"bytes"
	"context"
	"fmt"
	"os"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/results"
)

// This example writes the rows of a job as parts, here one complete part per
// shard. Concatenated they are the full file. All files for clients are made
// from it.
func Example() {
	ctx, schema := context.Background(), results.Schema{JobID: "job-1", Model: "gpt-oss-20b"}
	part := func(first int64, answers ...string) results.Source {
		var file bytes.Buffer
		w, err := results.NewPartWriter(&file, schema)
		if err != nil {
			panic(err)
		}
		for i, answer := range answers {
			row := rowmill.Row{Index: first + int64(i), Text: fmt.Sprintf("question %d", first+int64(i))}
			if err := w.Add(&row, &rowmill.RowOutput{Text: answer, Attempts: 1}); err != nil {
				panic(err)
			}
		}
		if err := w.Close(); err != nil {
			panic(err)
		}
		return bytes.NewReader(file.Bytes())
	}

	var full bytes.Buffer
	rows, err := results.ConcatParts(ctx, &full, schema, []results.Source{part(0, "a", "b"), part(2, "c")}, results.Full)
	if err != nil {
		panic(err)
	}
	fmt.Println(rows, "rows")
	if err := results.WriteJSON(ctx, os.Stdout, bytes.NewReader(full.Bytes()), schema, results.FileVariant{Inputs: true}); err != nil {
		panic(err)
	}
	// Output:
	// 3 rows
	// {"outputs":["a","b","c"],"inputs":["question 0","question 1","question 2"]}
}
