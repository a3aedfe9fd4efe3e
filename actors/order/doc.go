// Package order decides which row of a job goes out next: the longest expected
// answer first, so that no long one is left over at the end, and rows that
// share a long prefix one after another to the same server, so that it
// computes the prefix once. It owns what is learned about the lengths of
// answers while a job runs. It knows no actors, no engines and no clock, and
// nothing in it is safe for concurrent use.
//
//	rows loaded ──► Pool ──► Take(port) ──► rows for one server
//	                 ▲ expected tokens
//	answers ──────► Lengths
//
// Lengths cannot be known, only expected, and what is expected changes with
// every answer. A Pool therefore keeps rows in cells, all rows of one size and
// from one region of the input, and ranks the cells, not the rows.
package order
