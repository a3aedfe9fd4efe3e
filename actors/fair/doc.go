// Package fair shares a limited number of places on a node between accounts, so that no
// account can block another. It only decides: it knows no actors, no jobs, and not the
// use of the places.
package fair
