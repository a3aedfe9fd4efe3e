// Package order decides which row of a job is sent next. The longest expected answers go
// first, so that no long row remains at the end. Rows with the same long prefix go one
// after another to the same server, so the server computes the prefix once. The package
// learns the length of answers while a job runs. It uses no actors, no engines and no
// clock, and nothing in it is safe for concurrent use.
//
//	rows loaded ──► Pool ──► Take(port) ──► rows for one server
//	                 ▲ expected tokens
//	answers ──────► LengthEstimator
//
// The length of an answer is only expected, and each answer changes the expectation. So a
// Pool has its rows in cells, each with the rows of one size class and one region of the
// input, and ranks the cells instead of the rows.
package order
