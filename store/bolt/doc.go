// Package bolt is the embedded store: one bbolt file, one process. It owns the
// layout of that file and the gathering of writes into commits. It knows
// nothing of what the records are for; the rules it enforces are those of
// package store.
//
// # Layout
//
// Big things that never change are kept apart from small ones that do, so that
// a progress commit writes about two kilobytes whatever the job's inputs and
// prompts are, and a list decodes no specification.
//
//	bucket    key                                value
//	meta      "schema"                           version of this layout
//	jobs      job id                             header: the record without spec and long texts, JSON
//	texts     job id                             system prompt and JSON schema, sections; absent when neither is set
//	specs     job id                             specification, sections
//	accounts  account 0 created job id           1
//	waiting   account 0 created job id           status; open jobs without a session
//	owned     account 0 created job id           status 0 session; open jobs with one, live or dead
//	turns     account                            sequence number of its last claim
//	idem      account 0 key                      job id, body hash, expiry; JSON
//	idemage   expiry account 0 key               1
//	parts     job id 0 shard sequence            part, JSON
//	partkeys  job id 0 part key                  shard sequence, or 0 once the part was merged away
//	usage     account 0 day model                totals and cost of what was committed that day, JSON
//	keyusage  account 0 day model 0 key id       the part of it that jobs of the key have, JSON
//	reserved  account 0 job id                   1; open jobs that have money set aside
//	held      account 0 ended job id             1; jobs that are over and may have data
//	due       due job id                         1; jobs that are over, by when something of them is to be removed
//	keys      key id                             key, JSON
//	values    name                               version, document
//	batches   account 0 dialect 0 job id         1
//	files     file id                            file, JSON
//	filelists account 0 purpose 0 file id        1; once more under the purpose ""
//	filesdue  expires file id                    1; files that expire
//	deliveries       delivery id                 version, delivery, JSON
//	deliverylists    endpoint 0 delivery id      1
//	deliveriesdue    endpoint 0 due delivery id  1; deliveries that are pending
//	endpointsdue     due endpoint                1; endpoints with such, by the first of them
//	deliveryexpires  expires delivery id         1; deliveries that are over
//	audit     account 0 at id                    audit entry, JSON; once more under the account ""
//
// Numbers in keys are big-endian, so that byte order is their order; "created",
// "ended", "due", "expires" and "at" are nanoseconds since 1970 with the sign bit flipped, "day" is days
// since 1970.
//
// # Durability
//
// A commit is one bbolt transaction, which bbolt flushes twice: its pages, then the page that
// names them. When a write fails (disk full) nothing of its transaction is visible and the
// store goes on. When a flush fails nobody knows what is on disk, and a second flush may lie
// about the first: the store then refuses every write until the process is started again.
//
// # Free pages
//
// Which pages of the file are free is found by a walk over it at the start, and is
// not written. Inputs that went with the data of their jobs leave free pages behind,
// 15 for 60 KB, and a commit that wrote the list of them all would grow by 8 bytes
// for each. A file that an earlier version has written has the list, and one without
// it is read by earlier versions too.
package bolt
