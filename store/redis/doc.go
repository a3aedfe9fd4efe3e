// Package redis is the store of a cluster: one Redis server, 6.2 or newer, or
// one that speaks its protocol, shared by any number of processes, with
// Sentinels in front of it or without. It owns the layout of the keys and the
// scripts that write them. It knows nothing of what the records are for; the
// rules it enforces are those of package store.
//
// # Layout
//
// Every name begins with Config.Prefix. A job is one hash, so that a commit
// touches its counters and never its specification, and a list reads no
// specification either.
//
//	job:JOB                hash: the fields of record.go; account, order, rate, key; birth, token;
//	                       for each writer how many writes there are from it
//	parts:JOB              hash: part key → version, index, rows, complete, record
//	shards:JOB             sorted set: part key, by shard
//	merged:JOB             set: keys of parts that a complete one has replaced
//	jobs:ACCOUNT           sorted set: order of every job
//	waiting:ACCOUNT        sorted set: order of open jobs without a session
//	waiters                set: accounts that have waiting jobs
//	owned                  hash: open jobs with a session, live or dead → session, created, account
//	turns                  hash: account → number of its last claim
//	turn                   number of the last claim
//	session:SESSION        ttl in ms; expires with the session
//	idem:N:ACCOUNT:KEY     hash: job, body; expires with the idempotency key; N is the account's length
//	usage:DAY:ACCOUNT      hash: counter and rate → sum
//	keyusage:DAY:ACCOUNT   hash: counter, length of key id, ":", key id, rate → the part of that sum that jobs of the key have
//	days:ACCOUNT           sorted set: days with usage
//	reserved:ACCOUNT       set: jobs with money set aside
//	granted:ACCOUNT        sum of all that was ever set aside, millionths of a US dollar
//	held:ACCOUNT           sorted set: time of the end, as in an order, and id of jobs with data that are over
//	due                    sorted set: jobs that are over, by when something of them is to be removed, ms since 1970
//	holders                set: accounts that have such jobs
//	keys                   hash: key id → key, JSON
//	values                 hash: name → version, token, document
//	names                  sorted set: names of values
//	audit:ACCOUNT          sorted set: order, NUL, audit entry; once more under the account ""
//	batches:DIALECT:ACCOUNT  sorted set: ids of batches
//	files                  hash: file id → file, JSON
//	filelist:N:PURPOSE:ACCOUNT  sorted set: ids of files; once more under the purpose ""; N is the purpose's length
//	filesdue               sorted set: ids of files that expire, by when, ms since 1970
//	deliveries             hash: delivery id → version, token, delivery, JSON
//	deliverylist:ENDPOINT  sorted set: ids of deliveries
//	deliveriesdue:ENDPOINT  sorted set: ids of those that are pending, by when they are due, ms since 1970
//	endpointsdue           sorted set: endpoints with such, by the first of them
//	deliveryexpires        sorted set: ids of deliveries that are over, by when they go, ms since 1970
//	meta                   hash: schema version
//	ping                   when it was last written
//
// A counter is a sum of rows or tokens at a rate, or of money where what the tokens
// cost was charged elsewhere, before the records were moved here.
//
// An order is the time of creation as 16 hexadecimal digits and the job id. A
// rate is the two prices and the model's id. DAY is days since 1970, UTC.
//
// # Writes
//
// Every write is one script or one command, which Redis executes and appends to
// its file as a whole. Scripts check session and epoch themselves; a session is
// a key that the server expires by its own clock. Update, Finish and Cancel
// read a record, change it in Go, and write it back on condition that its
// version is still the one that was read.
//
// Numbers are compared and added by Redis commands, or as decimal strings: the
// numbers of Lua end at 2^53, and money does not. Prices are multiplied in Go.
//
// # Lost answers
//
// A call whose connection breaks is repeated, for as long as Timeouts say.
// Each call carries a token that the record keeps, by which a repeat knows what
// an earlier attempt has done: an Update does not run twice, a Create does not
// find its own job in its way. Where the last attempt ends without an answer,
// the error is store.ErrOutcomeUnknown. The server may still execute such a write
// later; a fence, a version or a key then makes it do nothing that was not
// asked for. An unknown Claim may have made the caller's session the owner:
// ask Get.
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
// What is lost is always a tail: the last writes, in whole scripts. Parts,
// totals, indexes and ledger agree with each other afterwards. A claim
// may be forgotten, but its epoch is not handed out again. A write of who
// was told of more than there is (store.Writer) is refused, and package recall
// writes again what is missing. Store.Durability says which of these apply.
package redis
