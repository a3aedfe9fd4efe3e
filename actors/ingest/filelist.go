package ingest

import (
	"context"
	"errors"
	"io"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/input/sources"
	"github.com/rowmill/rowmill/internal/panics"
	"github.com/rowmill/rowmill/store"
)

// A fileList returns the files of a source in order. It may return the first files while the others are
// still being listed.
type fileList struct {
	files []sources.File     // the files that are listed so far
	at    int                // number of files that next has returned
	err   error              // why the files cannot be listed
	rest  <-chan listedFiles // gets the whole list; nil if files has all files
	stop  context.CancelFunc // stops the listing; nil if there is none
}

// listedFiles is the result of a listing.
type listedFiles struct {
	files []sources.File
	err   error
}

// next returns the next file, and waits until it is listed. After the last file it returns io.EOF.
func (l *fileList) next() (file sources.File, err error) {
	if l.at == len(l.files) && l.rest != nil {
		l.add(<-l.rest)
	}
	switch {
	case l.at < len(l.files):
		l.at++
		return l.files[l.at-1], nil
	case l.err != nil:
		err, l.err = l.err, nil
		return file, err
	}
	return file, io.EOF
}

// nextSize returns the size of the next file in bytes. listed is false if next would wait or return io.EOF.
func (l *fileList) nextSize() (size int64, listed bool) {
	select {
	case found := <-l.rest:
		l.add(found)
	default:
	}
	if l.at < len(l.files) {
		return l.files[l.at].Size, true
	}
	return 0, l.err != nil
}

// add adds the other files. The whole list begins with the first files.
func (l *fileList) add(whole listedFiles) {
	if l.rest, l.err = nil, whole.err; l.err == nil {
		l.files = whole.files
	}
}

// size returns the size of all files in bytes; 0 if they are not all listed.
func (l *fileList) size() (size int64) {
	if l.rest != nil {
		return 0
	}
	for _, file := range l.files {
		size += file.Size
	}
	return size
}

// close stops the listing and waits for its end.
func (l *fileList) close() {
	if l.stop != nil {
		l.stop()
	}
	if l.rest != nil {
		l.add(<-l.rest)
	}
}

// listFiles returns the files that a job reads from a source. source is the record of this job, or
// of the job that this job continues. The files are listed once: their list is stored, and all
// later owners of the job, and jobs that continue it, read the same versions. If early is set, the
// returned list may have only the first files yet. The caller must close the list.
func (g *ingester) listFiles(ctx context.Context, source store.Record, early bool) (*sources.Files, *fileList, error) {
	files, err := g.Sources.Find(source.Spec.Account, source.Spec.Source)
	if err != nil {
		failure := rowmill.Failf(rowmill.CodeDownloadFailed, "The source of %s cannot be read any more. Ask the operator to check the setting sources of all nodes, then resume the job.", source.Spec.Source)
		failure.AdditionalContext = err.Error()
		return nil, nil, failure
	}
	id, key := g.rec.Job.ID, layout.FileListKey(g.rec.Job.ID)
	list, err := sources.ReadList(ctx, g.Bucket, key)
	if errors.Is(err, rowmill.ErrNotFound) && source.Job.ID != id {
		if err = g.copyFileList(ctx, source.Job.ID); err == nil {
			list, err = sources.ReadList(ctx, g.Bucket, key)
		}
	}
	if errors.Is(err, rowmill.ErrNotFound) {
		l, err := g.beginList(ctx, files, early)
		return files, l, err
	}
	return files, &fileList{files: list}, err
}

// beginList lists the files and stores the list. If early is set, it returns when the first files are listed.
// Rows of these files may run before all files are listed, so the list of the first files is stored
// before they are read: a later owner, which lists the other files again, makes the same first shards.
func (g *ingester) beginList(ctx context.Context, files *sources.Files, early bool) (*fileList, error) {
	id := g.rec.Job.ID
	first, err := sources.ReadList(ctx, g.Bucket, layout.FirstFilesKey(id))
	if err != nil && !errors.Is(err, rowmill.ErrNotFound) {
		return nil, err
	}
	begun, whole := make(chan []sources.File, 1), make(chan listedFiles, 1)
	var begin func(first []sources.File)
	if early && len(first) == 0 {
		begin = func(first []sources.File) { begun <- first }
	}
	listing, stop := context.WithCancel(ctx)
	go func() {
		var list []sources.File
		err := panics.Catch(func() (err error) {
			if list, err = files.ListEarly(listing, first, begin); err == nil {
				err = sources.WriteList(listing, g.Bucket, layout.FileListKey(id), list)
			}
			return err
		})
		whole <- listedFiles{list, err}
	}()
	l := &fileList{files: first, rest: whole, stop: stop}
	if early && len(first) > 0 {
		return l, nil
	}
	select {
	case l.files = <-begun:
		if err = sources.WriteList(ctx, g.Bucket, layout.FirstFilesKey(id), l.files); err != nil {
			l.close()
		}
		return l, err
	case all := <-whole:
		l.add(all)
		stop()
		return l, all.err
	}
}

// copyFileList copies the list of files of a job that this job continues.
func (g *ingester) copyFileList(ctx context.Context, from string) error {
	return g.Bucket.Copy(ctx, layout.FileListKey(from), layout.FileListKey(g.rec.Job.ID))
}

// writeFileRows adds the number of rows of each file to the list of files. A job with a sink writes a
// file for each of them, and later jobs find the rows of files that they need not read again.
func (g *ingester) writeFileRows(ctx context.Context) error {
	if g.files == nil {
		return nil
	}
	return sources.WriteList(ctx, g.Bucket, layout.FileListKey(g.rec.Job.ID), g.files.read)
}
