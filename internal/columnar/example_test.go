package columnar_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"

	"github.com/rowmill/rowmill/internal/columnar"
)

// Any Parquet file can be read column by column, as text.
func ExampleOpen() {
	data := questions()
	f, err := columnar.Open(bytes.NewReader(data), int64(len(data)), columnar.Limits{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range f.Columns() {
		fmt.Println(c.Name, c.Type)
	}
	rows := f.Rows(1, 0)
	defer rows.Close()
	for {
		if err := rows.Next(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			fmt.Println(err)
			return
		}
		question, err := rows.Text(0)
		if err != nil {
			fmt.Println(err)
			return
		}
		id, err := rows.ID(1)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(id.Int, question)
	}
	// Output:
	// id INT64
	// question STRING
	// 1 How tall is Kebnekaise?
	// 2 Who lives in Nikkaluokta?
}

// A Splicer concatenates tables, here with one of their columns, without
// decoding them.
func ExampleSplicer() {
	var out bytes.Buffer
	splice, err := columnar.NewSplicer(&out, []columnar.TableColumn{{Name: "question", Kind: columnar.TableText}}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		data := questions()
		t, err := columnar.OpenTable(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			fmt.Println(err)
			return
		}
		if err := splice.Append(context.Background(), t); err != nil {
			fmt.Println(err)
			return
		}
	}
	if err := splice.Close(); err != nil {
		fmt.Println(err)
		return
	}

	t, err := columnar.OpenTable(bytes.NewReader(out.Bytes()), int64(out.Len()))
	if err != nil {
		fmt.Println(err)
		return
	}
	scan := t.Scan(0)
	if err := scan.SeekRow(3); err != nil {
		fmt.Println(err)
		return
	}
	block, err := scan.Next()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("row 3 of %d: %s\n", t.Rows(), block.Text(0, int(3-block.First)))
	// Output: row 3 of 4: Who lives in Nikkaluokta?
}

// questions returns a table of two rows.
func questions() []byte {
	var file bytes.Buffer
	w, err := columnar.NewTableWriter(&file, []columnar.TableColumn{
		{Name: "id", Kind: columnar.TableInt, Required: true},
		{Name: "question", Kind: columnar.TableText},
	}, nil, columnar.TableConfig{})
	if err != nil {
		log.Fatal(err)
	}
	for i, question := range []string{"How tall is Kebnekaise?", "Who lives in Nikkaluokta?"} {
		w.AppendInt(0, int64(i+1))
		w.AppendText(1, question)
		if err := w.EndRow(); err != nil {
			log.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}
	return file.Bytes()
}
