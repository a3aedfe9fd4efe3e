// Package redis is an engine of tables on a Redis server, 6.2 or newer, or one that speaks its
// protocol, with Sentinels in front of it or without. Any number of processes share it. The
// package owns the layout of the keys and the one script that reads and writes them. It knows
// nothing of what the tables are for.
//
// # Layout
//
// Every name begins with Config.Prefix.
//
//	t:TABLE          hash: key -> value, as kv.Seal returns it
//	o:TABLE          sorted set: the keys of the table, all with the score 0, so in byte order
//	id               id of the last transaction, microseconds since 1970 or more
//	did:TOKEN        id of the transaction that the call with the token made; kept for a minute
//	session:SESSION  ttl in ms; expires with the session
//	ping             when it was last written
//
// # Transactions
//
// What a transaction has read is checked by the script that writes, in the same step. A
// transaction of an owner that goes on from its own last write takes one round trip: the engine
// remembers values that it has read and written, and the script finds out whether they still
// stand. Where they do not, the transaction runs again and reads.
//
// # Lost answers
//
// A call whose connection breaks is repeated, for as long as Timeouts say. Each call that writes
// carries a token, by which the server knows a repeat: it answers as before and does nothing.
// Where the last attempt ends without an answer, the error is store.ErrOutcomeUnknown. The server
// may still execute such a write later, if all that it rests on still stands then.
//
// # What can be lost
//
//	appendfsync always, no failover      nothing that was acknowledged
//	appendfsync everysec                 a crash: up to about 2 s of writes (of redis-server
//	                                     alone: only while a slow sync holds them back)
//	appendfsync no                       a crash of the machine: what the system had not
//	                                     written yet, about 30 s
//	no-appendfsync-on-rewrite yes        as appendfsync no while the file is rewritten
//	appendonly no                        everything since the last snapshot
//	failover to a replica                what the replica had not received: usually
//	                                     milliseconds; without a bound unless
//	                                     min-replicas-to-write and min-replicas-max-lag
//	                                     set one
//	maxmemory-policy, any that evicts    any record: refused by Open
//
// What is lost is always a tail: the last transactions, whole. Ids of transactions that were lost
// are not given again, unless the server's clock goes back. Engine.Durability says which of these
// apply.
package redis
