// Package fair shares a limited number of places on a node between accounts, so that no
// account can block another. A place allows one unit of work, such as a job or a
// download. The package only decides: it uses no actors and no jobs.
package fair
