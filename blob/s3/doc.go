// Package s3 stores objects in a bucket of an S3 server: Amazon's, or another
// server with the same protocol. It translates blob.Bucket into S3 requests,
// retries them, and signs URLs. It does not know the content of objects. It
// never makes the bucket.
//
// # Guarantees
//
//   - Commit makes an object visible atomically, and as durable as the server
//     makes it. Commit returns after the server has confirmed. From then on Stat,
//     Open and List of every process see the object, as on Amazon since December
//     2020. A server that shows its writes later cannot be used.
//   - The signature of an upload has its SHA-256, so the server refuses a damaged
//     upload. An answer that is cut off or wrong is detected, and the request is
//     repeated.
//   - Throttling, 5xx answers, and broken, refused and stalled connections are
//     retried with Config.Retry, for as long as a restart of the server takes. A
//     repeated request does no harm. If the answer to the completion of an upload
//     is lost, the object's metadata show whether this writer completed it.
//   - After an error of Commit other than rowmill.ErrNotFound the object may or
//     may not exist: a server can fail after the work and before its answer. The
//     caller writes under another key, or writes again.
//
// # Limits of S3
//
//   - S3 does not keep a version of an object for its readers. Every request names the
//     ETag that was opened, so versions are never mixed. If the object is deleted or
//     replaced by other content, a reader gets blob.ErrLost for bytes that were not
//     read before. Open reads the first 256 KiB.
//   - The ETag depends on the content, so a replacement with equal content has the
//     same ETag.
//   - DeletePrefix aborts the writers of its own process, and cancels unfinished
//     uploads of other processes. It does not see an object of another process that
//     fits into one request, so that object may appear later. On some servers, an
//     object may also appear later if one of its parts is being sent at that moment.
//   - A server may ignore If-Range, and may serve a signed URL with any
//     Authorization header.
//
// # Servers that lack calls
//
// Open tests copies of objects and of ranges, deletions of many objects and the
// listing of unfinished uploads, with objects of a few bytes. A call that the
// server refuses or does wrongly, in these tests or later, is a Limitation: until the
// process ends, the work is done in another way. MinIO lists unfinished uploads only for a
// complete key, not for a prefix; it removes them by itself after a day.
//
// Cloudflare R2 requires that all parts except the last have the same length.
// The first writer that appends from another object finds this out: it lets the
// server copy 10 MiB of that object in parts of different lengths. If the
// server refuses, all parts of an upload have the same length, and for each
// appended range the bytes of about one part pass through this process, see
// Expect.
//
// # Memory
//
// A writer holds its whole object if the object fits into one part, and otherwise at
// most (Concurrency+1) × PartSize: 48 MiB by default. A writer holds more if parts must
// have equal lengths and the caller expects more than 140 GiB, because the parts are
// then longer. All readers together hold ReadCache plus the data of running requests,
// which are at most ReadAhead for each reader.
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
// Because of s3:ListBucket Amazon answers 404, not 403, for a missing object.
// s3:GetBucketLocation is needed only if neither Config.Region nor the endpoint
// gives the region.
//
// A process that is killed during an upload leaves parts that cost money and
// that no listing of objects shows. DeletePrefix removes the parts under its prefix if
// the server lists unfinished uploads. This lifecycle rule of the bucket removes all
// other parts:
//
//	{"Rules": [{"ID": "unfinished uploads", "Status": "Enabled", "Filter": {"Prefix": "rowmill/"},
//	  "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1}}]}
//
// A day is enough: no upload takes longer than writing one object. The bucket
// should not keep versions, or a rule should expire them (NoncurrentDays: 1).
package s3
