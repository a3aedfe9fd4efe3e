// Package records is a store.Store over an engine of package kv: it owns the tables of the
// records, and each operation of the contract, once for all engines. It knows no engine.
//
// # Tables
//
// Big things that never change are kept apart from small ones that do, so that
// a progress commit writes about two kilobytes whatever the job's inputs and
// prompts are, and a list decodes no specification.
//
//	table     key                                value
//	meta      "layout"                           number of this layout
//	jobs      job id                             header: the record without spec and long texts, JSON
//	texts     job id                             system prompt and JSON schema, sections; absent when neither is set
//	specs     job id                             specification, sections
//	accounts  account 0 created job id           empty
//	waiting   account 0 created job id           status; open jobs without a session
//	owned     account 0 created job id           status 0 session; open jobs with one, live or dead
//	turns     account                            empty; its transaction is that of the last claim
//	idem      account 0 key                      job id, body hash, expiry; JSON
//	idemage   expiry account 0 key               empty
//	parts     job id 0 shard version index       part, JSON; the version is that of the job's record
//	partkeys  job id 0 part key                  shard version index, or 0 once the part was merged away
//	usage     account 0 day model                counters: totals and cost of what was committed that day
//	keyusage  account 0 day model 0 key id       the part of it that jobs of the key have
//	reserved  account 0 job id                   empty; open jobs that have money set aside
//	granted   account                            empty; written with each reservation under a limit
//	held      account 0 ended job id             empty; jobs that are over and may have data
//	due       due job id                         empty; jobs that are over, by when something of them is to be removed
//	keys      key id                             key, JSON
//	values    name                               version, document
//	batches   account 0 dialect 0 job id         empty
//	files     file id                            file, JSON
//	filelists account 0 purpose 0 file id        empty; once more under the purpose ""
//	filesdue  expires file id                    empty; files that expire
//	deliveries       delivery id                 version, delivery, JSON
//	deliverylists    endpoint 0 delivery id      empty
//	deliveriesdue    endpoint 0 due delivery id  empty; deliveries that are pending
//	endpoints        endpoint                    due, of the first of them
//	endpointsdue     due endpoint                empty; endpoints with such, by the first of them
//	deliveryexpires  expires delivery id         empty; deliveries that are over
//	audit     account 0 at id                    audit entry, JSON; once more under the account ""
//
// Numbers in keys are big-endian, so that byte order is their order; "created",
// "ended", "due", "expires" and "at" are nanoseconds since 1970 with the sign bit flipped, "day" is days
// since 1970.
//
// # Damage
//
// What is asked for by its name and is damaged answers store.ErrDamaged, and so do the parts of a
// job and the ledger, whose sums must be exact. A list leaves a damaged record out and logs it.
package records
