// Package redis is a backend on a Redis server, version 6.2 or newer, or on a server
// with the same protocol, with or without Sentinels. Any number of processes can share
// the server. The package owns the layout of the keys and the one script that reads and
// writes them. It does not know the meaning of the tables.
//
// # Layout
//
// Every name begins with Config.Prefix.
//
//	t:TABLE          hash: key -> value, as kv.Seal returns it
//	o:TABLE          sorted set: the keys of the table, in byte order because all have score 0
//	id               id of the last transaction: its time in microseconds since 1970, or more
//	did:TOKEN        id of the transaction of the call with this token; kept for a minute
//	session:SESSION  ttl in ms; expires with the session
//	ping             written by Ping
//
// # Transactions
//
// The script that writes also checks, in the same step, that no value that the
// transaction has read has changed. The backend caches values that it has read and
// written, so that an owner that continues from its own last write needs one round
// trip: the script detects a value that is out of date, and the transaction then runs
// again with reads.
//
// # Lost answers
//
// A call with a broken connection is repeated within Timeouts.Retry. Each call that
// writes carries a token. The server recognizes a repeated token, returns the same
// answer and writes nothing. When the last attempt ends without an answer, the error is
// store.ErrOutcomeUnknown. The server may still execute such a write later, if the
// values that the transaction has read are unchanged then.
//
// # Possible data loss
//
//	appendfsync always, no failover      nothing that was acknowledged
//	appendfsync everysec                 a crash: up to about 2 s of writes (a crash of
//	                                     redis-server alone: only while a slow sync delays
//	                                     the writes to the file)
//	appendfsync no                       a crash of the machine: about 30 s of writes that
//	                                     the system had not written to disk
//	no-appendfsync-on-rewrite yes        as appendfsync no while the file is rewritten
//	appendonly no                        everything since the last snapshot
//	failover to a replica                writes that the replica had not received: usually
//	                                     milliseconds; without a limit unless
//	                                     min-replicas-to-write and min-replicas-max-lag
//	                                     set one
//	maxmemory-policy, any that evicts    any record: refused by Open
//
// A loss always concerns the last transactions, each completely. Ids of lost
// transactions are not used again, unless the server's clock goes back.
// Backend.ListDurabilityRisks reports which of these cases apply.
package redis
