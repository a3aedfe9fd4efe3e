package s3

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"

	"github.com/minio/minio-go/v7"

	"github.com/rowmill/rowmill/blob"
)

// probeText is the content of the object that a probe writes, reads and copies.
var probeText = []byte("rowmill checks what this store can do")

// probeTries is how often a probe repeats a call with a wrong answer before it
// decides that the server does not support the call. A restart of the server
// can cause a single wrong answer.
const probeTries = 3

// probe tests a server with the S3 calls of this package, on objects of a few bytes.
// The basic calls must succeed. A call may fail if this package has a substitute for
// it, see substitutes.
type probe struct {
	*Bucket
	folder string // the objects of the probe are in this folder
}

// newProbe returns a probe that writes only in a new folder. No listing of the
// bucket shows its objects, because their names are not keys ("!" is not
// allowed in keys).
func (b *Bucket) newProbe() *probe {
	return &probe{Bucket: b, folder: b.name("!check-" + rand.Text() + "/")}
}

func (p *probe) run(ctx context.Context) error {
	source, copied, joined := p.folder+"source", p.folder+"copied", p.folder+"joined"
	etag, err := p.write(ctx, source)
	if err != nil {
		return err
	}
	if err := p.retryCall(ctx, func(ctx context.Context) error { return p.checkContent(ctx, source, probeText) }); err != nil {
		return p.addRemedy("read an object", err)
	}
	err = p.testCall(ctx, copyObjects, func(ctx context.Context) error {
		if err := p.copyOnce(ctx, source, copied); err != nil {
			return err
		}
		return p.checkContent(ctx, copied, probeText)
	})
	if err != nil {
		return p.addRemedy("copy an object", err)
	}
	if err := p.testUpload(ctx, source, etag, joined); err != nil {
		return err
	}
	return p.removeProbeObjects(ctx, source, copied, joined)
}

// testCall makes a call that some servers do not support. If this server refuses the
// call or gives wrong answers, testCall records the limit and returns no error.
func (p *probe) testCall(ctx context.Context, call int, do func(ctx context.Context) error) error {
	tries := 0
	return p.retryCall(ctx, func(ctx context.Context) error {
		err := do(ctx)
		tries++
		if isUnsupported(err) || isDenied(err) || errors.Is(err, errWrongAnswer) && tries == probeTries {
			p.limits.add(call, err)
			return nil
		}
		return err
	})
}

// isDenied reports whether the server answered that the call is not permitted or that
// the object does not exist. The probe has just written and read objects with the same
// access key, so the server refuses only this kind of call.
func isDenied(err error) bool {
	var answer minio.ErrorResponse
	return errors.As(err, &answer) && !isTransient(err) &&
		(answer.StatusCode == http.StatusForbidden || answer.StatusCode == http.StatusNotFound)
}

// write writes the object that the other calls copy.
func (p *probe) write(ctx context.Context, name string) (etag string, err error) {
	err = p.retryCall(ctx, func(ctx context.Context) error {
		put, err := p.putOnce(ctx, name, "", bytes.NewReader(probeText), int64(len(probeText)), digest(probeText))
		if err == nil && put.VersionID != "" {
			p.config.Logger.Warn("the bucket keeps versions: deleted objects stay and cost money, unless a lifecycle rule expires old versions")
		}
		etag = put.ETag
		return err
	})
	if err != nil {
		return "", p.addRemedy("write an object", err)
	}
	return etag, nil
}

// checkContent compares an object with the expected bytes.
func (p *probe) checkContent(ctx context.Context, name string, want []byte) error {
	content, _, _, err := p.client.GetObject(ctx, p.config.Bucket, name, minio.GetObjectOptions{})
	if err != nil {
		return err
	}
	got, err := io.ReadAll(content)
	if err = errors.Join(err, content.Close()); err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("%w: an object of %d bytes was written, and %d different bytes were read back", errWrongAnswer, len(want), len(got))
	}
	return err
}

// testUpload begins an upload in parts, tests whether the server lists the upload, and
// completes the object.
func (p *probe) testUpload(ctx context.Context, source, etag, to string) error {
	upload, err := p.beginUpload(ctx, to, minio.PutObjectOptions{})
	if err != nil {
		return p.addRemedy("start an upload in parts", err)
	}
	if err := p.testListing(ctx, upload); err != nil {
		return p.addRemedy("list unfinished uploads", errors.Join(err, p.abortUpload(ctx, to, upload)))
	}
	err = p.testRangeCopy(ctx, source, etag, to, upload)
	if err != nil || p.limits.lacks(copyParts) {
		err = errors.Join(err, p.abortUpload(ctx, to, upload))
	}
	if err != nil {
		return p.addRemedy("upload an object in parts", err)
	}
	return nil
}

// testRangeCopy lets the server make an object from a range of another object.
func (p *probe) testRangeCopy(ctx context.Context, source, etag, to, upload string) error {
	const from, size = 8, 6 // one word of probeText
	var part minio.CompletePart
	copyRange := func(ctx context.Context) (err error) {
		part, err = p.copyPartOnce(ctx, source, quoteETag(etag), to, upload, 1, from, size)
		return err
	}
	otherVersion := func(ctx context.Context) error {
		_, err := p.copyPartOnce(ctx, source, quoteETag("of another version"), to, upload, 2, from, size)
		switch {
		case err == nil:
			return fmt.Errorf("%w: it copied a range of a version that the request did not name", errWrongAnswer)
		case isTransient(err):
			return err
		}
		return nil
	}
	complete := func(ctx context.Context) error {
		_, err := p.client.CompleteMultipartUpload(ctx, p.config.Bucket, to, upload, []minio.CompletePart{part}, minio.PutObjectOptions{})
		if err != nil && errorCode(err) != codeNoSuchUpload { // an earlier try may have completed the upload
			return err
		}
		return p.checkContent(ctx, to, probeText[from:from+size])
	}
	for _, step := range []struct {
		call int
		do   func(ctx context.Context) error
	}{
		{copyVersions, copyRange},
		{copyVersions, otherVersion},
		{copyParts, copyRange}, // the first copy again, without the condition if the server refused it
		{copyParts, complete},
	} {
		if step.call == copyVersions && p.limits.lacks(copyVersions) {
			continue
		}
		if err := p.testCall(ctx, step.call, step.do); err != nil || p.limits.lacks(copyParts) {
			return err
		}
	}
	return nil
}

// These values say whether an upload can have parts of different lengths.
const (
	mixedUnknown = iota
	mixedAccepted
	mixedRefused
)

// acceptsMixed reports whether an upload can have parts of different lengths.
// Cloudflare R2 refuses to complete such an upload. The test needs parts of 5
// MiB, which are too many bytes to upload at the start. So it runs when an
// object is first appended to another: that object is long enough, and the
// server copies the bytes.
func (b *Bucket) acceptsMixed(ctx context.Context, from blob.ObjectInfo) (bool, error) {
	b.mixedMu.Lock()
	defer b.mixedMu.Unlock()
	if b.mixed.Load() == mixedUnknown {
		err := b.newProbe().testMixedParts(ctx, b.name(from.Key), from.ETag)
		switch {
		case b.recordIfUnsupported(copyParts, err):
			return false, nil
		case err != nil:
			return false, fmt.Errorf("test whether the server accepts parts of different lengths: %w", err)
		case b.limits.lacks(mixedParts):
			b.mixed.Store(mixedRefused)
			b.logLimit(mixedParts)
		default:
			b.mixed.Store(mixedAccepted)
		}
	}
	return b.mixed.Load() == mixedAccepted, nil
}

// testMixedParts makes an object from the beginning of another object, in parts of
// different lengths.
func (p *probe) testMixedParts(ctx context.Context, source, etag string) error {
	to := p.folder + "mixed"
	upload, err := p.beginUpload(ctx, to, minio.PutObjectOptions{})
	if err != nil {
		return err
	}
	var parts []minio.CompletePart
	for i, size := range []int64{minPartSize + 1, minPartSize, 1} {
		err = p.retryCall(ctx, func(ctx context.Context) error {
			part, err := p.copyPartOnce(ctx, source, etag, to, upload, i+1, 0, size)
			if err == nil {
				parts = append(parts, part)
			}
			return err
		})
		if err != nil {
			return errors.Join(err, p.abortUpload(context.WithoutCancel(ctx), to, upload))
		}
	}
	err = p.testCall(ctx, mixedParts, func(ctx context.Context) error {
		_, err := p.client.CompleteMultipartUpload(ctx, p.config.Bucket, to, upload, parts, minio.PutObjectOptions{})
		if errorCode(err) == codeNoSuchUpload { // an earlier try completed the upload
			return nil
		}
		return err
	})
	if err != nil || p.limits.lacks(mixedParts) {
		return errors.Join(err, p.abortUpload(context.WithoutCancel(ctx), to, upload))
	}
	return p.retryCall(ctx, func(ctx context.Context) error { return p.removeOnce(ctx, to) })
}

// testListing tests whether the server lists an unfinished upload in the folder.
func (p *probe) testListing(ctx context.Context, upload string) error {
	var denied error
	err := p.testCall(ctx, listUploads, func(ctx context.Context) error {
		found, err := p.client.ListMultipartUploads(ctx, p.config.Bucket, p.folder, "", "", "", uploadsPage)
		if errorCode(err) == codeAccessDenied { // not a limit: the operator should permit the call
			denied = p.translate(err)
			return nil
		}
		if err == nil && !slices.ContainsFunc(found.Uploads, func(u minio.ObjectMultipartInfo) bool { return u.UploadID == upload }) {
			err = fmt.Errorf("%w: it lists %d uploads in a folder, but not the upload that was begun there", errWrongAnswer, len(found.Uploads))
		}
		return err
	})
	return errors.Join(err, denied)
}

// removeProbeObjects deletes the objects of the probe: the first with its own request, the others
// with one request for all.
func (p *probe) removeProbeObjects(ctx context.Context, name string, others ...string) error {
	err := p.retryCall(ctx, func(ctx context.Context) error { return p.removeOnce(ctx, name) })
	if err == nil {
		err = p.testCall(ctx, deleteMany, func(ctx context.Context) error {
			if err := p.removeTogether(ctx, others); err != nil {
				return err
			}
			for _, other := range others {
				_, err := p.client.StatObject(ctx, p.config.Bucket, other, minio.StatObjectOptions{})
				if err == nil {
					return fmt.Errorf("%w: it deleted many objects, but one of them still exists", errWrongAnswer)
				}
				if errorCode(err) != codeNoSuchKey {
					return err
				}
			}
			return nil
		})
	}
	if err == nil && p.limits.lacks(deleteMany) {
		err = p.removeEach(ctx, others)
	}
	if err != nil {
		return p.addRemedy("delete an object", err)
	}
	return nil
}

// copyOnce lets the server copy an object.
func (b *Bucket) copyOnce(ctx context.Context, from, to string) error {
	copied, err := b.client.CopyObject(ctx, b.config.Bucket, from, b.config.Bucket, to, nil, minio.CopySrcOptions{}, minio.PutObjectOptions{})
	return checkCopied(copied.ETag, err)
}

// copyPartOnce lets the server copy a range of an object as a part of an
// upload. It copies only the version with the given ETag (in quotes), or any
// version if the server does not support this condition.
func (b *Bucket) copyPartOnce(ctx context.Context, from, etag, to, upload string, number int, offset, size int64) (minio.CompletePart, error) {
	var same map[string]string
	if !b.limits.lacks(copyVersions) {
		same = map[string]string{"x-amz-copy-source-if-match": etag}
	}
	part, err := b.client.CopyObjectPart(ctx, b.config.Bucket, from, b.config.Bucket, to, upload, number, offset, size, same)
	return part, checkCopied(part.ETag, err)
}

// checkCopied finds answers with status 200 but without a copy. A server may fail
// during the copy and report the failure in a body that minio-go does not read. Or the
// server does not know copy requests, and treats the request as an upload.
func checkCopied(etag string, err error) error {
	if err == nil && etag == "" {
		return fmt.Errorf("%w: status 200, and no ETag of the copy", errWrongAnswer)
	}
	return checkBody(err)
}

// checkBody finds answers with status 200 and no body to requests for which minio-go
// expects a body.
func checkBody(err error) error {
	var unsent *url.Error
	if errors.Is(err, io.EOF) && !errors.As(err, &unsent) {
		return fmt.Errorf("%w: status 200, and no body", errWrongAnswer)
	}
	return err
}
