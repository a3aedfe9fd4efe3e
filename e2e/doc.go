// Package e2e tests the real binary from outside: it starts `rowmill serve` as a
// process, sends it HTTP requests with its own client, kills it, fills its disk, sends
// it broken files, and checks the files in its directory. It imports no package of the
// product.
//
// The inference server of most tests is a witness: it runs in the test's process,
// answers every row with a text derived from the row's number, and counts the requests
// for each row. So a test knows which rows ran twice, which the product itself cannot
// know. In tests of failing or dying servers, the servers are `rowmill sim` processes,
// which log their requests. Some tests use real llama-servers.
//
// Every node gets the addresses of its servers, so that other servers or a GPU on the
// machine do not change a test.
//
// `go test ./e2e` runs a quick form of everything. With ROWMILL_CI set, jobs have their
// full size: 100,000 rows if the node is killed, with 20 kills (10 jobs once each, one
// job 10 times), and 20,000 if servers fail. `make soak` (ROWMILL_SOAK) doubles the
// kills. ROWMILL_SEED repeats the kill times of an earlier run.
package e2e
