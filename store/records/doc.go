// Package records implements store.Store over a backend of package kv. It owns the
// tables of the records and each operation of the contract, once for all backends. It
// knows no backend.
//
// # Tables
//
// Large data that never changes is stored apart from small data that does. A commit of
// progress therefore writes about two kilobytes, however large the inputs and prompts
// of the job are, and a list decodes no specification.
//
//	table     key                                value
//	meta      "layout"                           number of this layout
//	jobs      job id                             header: the record without spec and long texts, JSON
//	texts     job id                             system prompt and JSON schema, sections; absent when neither is set
//	specs     job id                             specification, sections
//	accounts  account 0 created job id           empty
//	waiting   account 0 created job id           status; open jobs without a session
//	owned     account 0 created job id           status 0 session; open jobs with a session, live or dead
//	                                             (a parked job: status 0 0 time until which it is parked;
//	                                             a paused job: the same with the last possible time)
//	turns     account                            empty; its transaction id is the account's last claim
//	idem      account 0 key                      job id, body hash, expiry; JSON
//	idemage   expiry account 0 key               empty
//	parts     job id 0 shard version index       part, JSON; version: the version of the job's record
//	partkeys  job id 0 part key                  shard version index, or 0 after the part was merged
//	usage     account 0 day model                counters: totals and cost of the rows committed that day
//	keyusage  account 0 day model 0 key id       counters: the share of jobs of this API key
//	reserved  account 0 job id                   empty; open jobs that have money set aside
//	granted   account                            empty; written with each reservation under a limit
//	held      account 0 ended job id             empty; ended jobs that may have data
//	due       due job id                         empty; ended jobs by the time of their next removal
//	keys      key id                             key, JSON
//	values    name                               version, document
//	batches   account 0 dialect 0 job id         empty
//	files     file id                            file, JSON
//	filelists account 0 purpose 0 file id        empty; a second entry has the purpose ""
//	filesdue  expires file id                    empty; files that expire
//	deliveries       delivery id                 version, delivery, JSON
//	deliverylists    endpoint 0 delivery id      empty
//	deliveriesdue    endpoint 0 due delivery id  empty; pending deliveries
//	endpoints        endpoint                    due time of its first pending delivery
//	endpointsdue     due endpoint                empty; endpoints by their first pending delivery
//	deliveryexpires  expires delivery id         empty; deliveries that have ended
//	audit     account 0 at id                    audit entry, JSON; a second entry has the account ""
//
// Numbers in keys are big-endian, so that they sort in byte order. "created", "ended",
// "due", "expires" and "at" are nanoseconds since 1970 with the sign bit flipped; "day"
// is days since 1970.
//
// # Damage
//
// A read of a damaged record by its name returns store.ErrDamaged. So do reads of the
// parts of a job and of the ledger, because their sums must be exact. A list skips a
// damaged record and logs it.
package records
