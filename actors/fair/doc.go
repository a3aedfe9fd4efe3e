// Package fair divides a limited number of places on a node among accounts, so that no
// account can block another. A place allows one unit of work, such as a job or a
// download. The package only decides who gets a place: it knows no actors and no jobs.
package fair
