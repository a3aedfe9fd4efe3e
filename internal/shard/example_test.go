package shard_test

import (
	"bytes"
	"fmt"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/shard"
)

// Write a shard from start to end, and read its blocks in any order.
func Example() {
	var object bytes.Buffer
	w := shard.NewWriter(&object, 1000, true) // its first row is the input's row 1000
	for _, name := range []string{"a", "b", "c"} {
		if err := w.Add("row "+name, rowmill.ID{Kind: rowmill.IDString, Text: name}); err != nil {
			fmt.Println(err)
			return
		}
	}
	if err := w.Close(); err != nil {
		fmt.Println(err)
		return
	}

	r, err := shard.NewReader(bytes.NewReader(object.Bytes()), int64(object.Len()), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	block, err := r.ReadBlock(r.BlockOf(2))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.FirstRow()+2, block.ID(2).Text, block.Text(2))
	// Output: 1002 c row c
}
