// Package e2e tests the real binary from outside: it starts `rowmill serve` as
// a process, speaks HTTP to it with a client of its own, kills it, fills its
// disk, feeds it broken files, and looks at what it left in its directory. It
// imports nothing of the product.
//
// The inference server of most tests is a witness: it runs in the test's
// process, answers every row with a text derived from the row's number, and
// counts how often each row was asked for. So a test can say which rows were
// run twice, which the product cannot know of itself. Where servers fail or die
// they are `rowmill sim` processes, which write down what they were asked; and
// there are tests with real llama-servers.
//
// Every node is told its servers by name: what else listens on the machine, and
// whether it has a GPU, must not change a test.
//
// `go test ./e2e` runs a quick form of everything. With ROWMILL_CI set, jobs
// have their full size: 100,000 rows where the node is killed, at 20 moments
// (10 jobs once each, one job 10 times), and 20,000 where servers fail. `make
// soak` (ROWMILL_SOAK) doubles the kills. ROWMILL_SEED repeats the moments
// of an earlier run.
package e2e
