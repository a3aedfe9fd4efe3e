// Package e2e tests the real binary from outside: it starts `rowmill serve` as
// a process, speaks HTTP to it with a client of its own, kills it, fills its
// disk, feeds it broken files, and looks at what it left in its directory. It
// imports nothing of the product.
//
// The inference server of these tests is a witness: it runs in the test's
// process, answers every row with a text derived from the row's number, and
// counts how often each row was asked for. So a test can say which rows were
// run twice, which the product cannot know of itself.
//
// `go test ./e2e` runs a quick form of everything. With ROWMILL_CI set, jobs
// have their full size of 100,000 rows and are killed at 20 moments: 10 jobs
// once each, one job 10 times. `make soak` (ROWMILL_SOAK) doubles that.
// ROWMILL_E2E_SEED repeats the moments of an earlier run.
package e2e
