// Package nodes defines the state that nodes of a cluster send each other, decides when
// a changed state must be sent again, and ranks the nodes for a job. It uses no actors
// and sends nothing itself.
package nodes
