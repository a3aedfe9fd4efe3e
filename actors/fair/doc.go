// Package fair shares what a node has a bounded number of between accounts, so
// that none of them stops another, whatever it asks for. It decides; it knows no
// actors, no jobs, and not what is shared.
package fair
