package order_test

import (
	"fmt"

	"github.com/rowmill/rowmill/actors/order"
)

// Long texts are expected to get long answers, until the answers show otherwise.
func Example() {
	const server = order.Port(0)
	texts := []string{"Is this spam?", "Once upon a time there was a mill that ground rows, day and night. Go on."}
	row := func(i int64) order.Row[string] {
		return order.Row[string]{Value: texts[i], Text: texts[i], Position: i}
	}
	var lengths order.Lengths
	pool := order.NewPool[string](&lengths, 2)

	pool.Add([]order.Row[string]{row(0), row(1)})
	fmt.Println(pool.Take(server, 1, true)[0].Value)

	for range 100 { // here short questions get long answers, and long questions get short ones
		lengths.Learn(len(texts[0]), 0, 2, 5, 2000)
		lengths.Learn(len(texts[1]), 1, 2, 25, 1)
	}
	pool.Add([]order.Row[string]{row(1)})
	fmt.Println(pool.Take(server, 1, true)[0].Value)
	fmt.Println(pool.Len(), "row is left")
	// Output:
	// Once upon a time there was a mill that ground rows, day and night. Go on.
	// Is this spam?
	// 1 row is left
}
