package tokenize_test

import (
	"fmt"

	"github.com/rowmill/rowmill/tokenize"
)

func ExampleLoad() {
	encoding, err := tokenize.Load("o200k_base")
	if err != nil {
		fmt.Println(err)
		return
	}
	text := "Tokens are what models read."
	fmt.Println(encoding.Count(text), encoding.Encode(nil, text))
	fmt.Printf("%q\n", encoding.Truncate(text, 4))
	// Output:
	// 6 [30325 553 1412 7015 1729 13]
	// "Tokens are what models"
}
