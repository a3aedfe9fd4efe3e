// Package s3 keeps objects in a bucket of an S3 server: Amazon's or any that
// speaks its protocol. It owns the translation of blob.Bucket into S3 requests,
// their repetition, and the signing of URLs; it knows nothing of what objects
// hold. It never makes the bucket.
//
// # What is promised
//
//   - An object becomes visible at Commit, at once and as a whole, and is as
//     durable as the server makes it. Commit returns when the server has said so.
//     Stat, Open and List see it from then on from every process, as on Amazon
//     since December 2020; a server that is slower to show its writes cannot be
//     used.
//   - An upload carries its SHA-256 within the signature, so the server refuses
//     one that was damaged. An answer that is cut off, or is not what was asked
//     for, is noticed and asked for again.
//   - Throttling, 5xx answers, broken, refused and stalled connections are tried
//     again for Config.Retry, as long as a restart of the server takes. A
//     repeated request does no harm; when the answer to the completion of an
//     upload is lost, the object's metadata tell whether it was this writer's.
//   - An error other than rowmill.ErrNotFound from Commit leaves open whether the
//     object is there: a server that has done its work may be lost before it
//     says so. The caller writes under another key, or writes again.
//
// # What S3 cannot do
//
//   - It does not keep an object that is being read. Every request names the ETag
//     that was opened, so versions are never mixed, but once the object is deleted
//     or replaced by other content, a reader gets blob.ErrLost for what it has not
//     read ahead. Open reads the first 256 KiB.
//   - The ETag follows from the content, so a replacement with equal content has
//     the ETag of what it replaced.
//   - DeletePrefix ends the writers of its own process, and takes back unfinished
//     uploads of others. An object of another process that is small enough for
//     one request is nowhere before its Commit, and may appear afterwards; on
//     some servers so may one of which a part is on its way at that moment.
//   - A server may leave If-Range aside, and may serve a signed URL whatever
//     Authorization header comes with it.
//
// # What some servers cannot do
//
// Open tries copies of objects and of ranges, deletions of many objects and the listing
// of unfinished uploads, on objects of a few bytes. What the server refuses or does
// wrongly, then or later, is a Limit: it is done in another way until the process ends.
// MinIO lists unfinished uploads only by full key: it removes them by itself after
// a day.
//
// Cloudflare R2 takes only parts of equal length, but for the last part. The first writer
// that appends from another object finds that out: it has the server copy 10 MiB of that
// object in parts of several lengths. If the server refuses them, all parts of an upload
// have equal length, and about one part of each appended range passes through this process,
// see Expect.
//
// # Memory
//
// A writer holds its object while that fits one part, and otherwise at most
// (Concurrency+1) × PartSize: 48 MiB by default. It holds more if parts have equal length
// and the object is expected to have more than 140 GiB: its parts are longer then. All
// readers together hold ReadCache, and each reader the bytes on their way to it: at most
// ReadAhead.
//
// # Permissions
//
// The policy of the key, for a bucket "rows" with the prefix "rowmill/":
//
//	{"Version": "2012-10-17", "Statement": [
//	  {"Effect": "Allow", "Resource": "arn:aws:s3:::rows",
//	   "Action": ["s3:ListBucket", "s3:ListBucketMultipartUploads", "s3:GetBucketLocation"]},
//	  {"Effect": "Allow", "Resource": "arn:aws:s3:::rows/rowmill/*",
//	   "Action": ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]}]}
//
// s3:ListBucket is also what makes Amazon answer 404, not 403, for an object
// that is not there. s3:GetBucketLocation is needed only where neither
// Config.Region nor the endpoint says the region.
//
// A process that is killed in mid-upload leaves parts that are paid for and
// seen by no listing of objects. DeletePrefix removes those of its prefix, where the
// server lists them, and this lifecycle rule of the bucket all others:
//
//	{"Rules": [{"ID": "unfinished uploads", "Status": "Enabled", "Filter": {"Prefix": "rowmill/"},
//	  "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1}}]}
//
// A day is enough: no upload outlives the writing of one object. The bucket
// should keep no versions, or a rule should expire them (NoncurrentDays: 1).
package s3
