// Package sources reads and writes files in places that the operator has named. A client names a
// place and a pattern, such as "lake:reviews/day=2026-11-*/*.parquet", and never holds credentials.
// The package decides which account may use which files. It lists the files of a pattern, and
// notices when a listed file changes. It does not know jobs, rows or formats.
//
// If a file cannot be read, the error is a *rowmill.Failure that names the file and the remedy.
package sources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
)

// MaxFiles is the largest number of files that one job reads. The list of that many files takes
// about 20 MB of memory, and a listing from S3 takes about 10 seconds.
const MaxFiles = 100_000

// FirstFiles is the number of files that a job may read while the other files are listed. A page of a
// listing from S3 has 1,000 names and takes about 100 ms. A page has this many files even if every
// second name does not match. Many small files have enough rows for some shards.
const FirstFiles = 512

// A Place holds files that other programs write: a bucket or a folder. Its methods are safe for
// concurrent use. Paths have slashes, and no elements that are empty, "." or "..".
type Place interface {
	// List returns the files with paths that begin with prefix, if match returns true. Most places
	// find them in the order of the paths. After each file, List calls more with all files so far,
	// which more must not keep. If more returns false, List ends with these files. A place that
	// begins again after an error calls more with the first file again.
	List(ctx context.Context, prefix string, match func(path string) bool, more func(found []blob.ObjectInfo) bool) ([]blob.ObjectInfo, error)
	// Open opens a file that List returned. If the file has changed since, Open or a later read
	// returns blob.ErrLost or rowmill.ErrNotFound.
	Open(ctx context.Context, file blob.ObjectInfo) (blob.Object, error)
	// Write writes a file, and its folders if needed. A reader sees the whole new file or, before
	// that and after an error, the file that existed before.
	Write(ctx context.Context, path string, write func(w io.Writer) error) error
}

// A Source is a place with a name, and the rules for its use.
type Source struct {
	Name     string
	Place    Place
	Accounts []string // accounts that may use the source; empty: all
	Prefixes []string // folders that may be used, as CleanPrefix returns them; empty: the whole place

	Writable  bool // jobs may write their results to it
	WriteOnly bool // jobs may not read it
}

// reserved are names that inputs may begin with for other reasons.
var reserved = []string{"http", "https", "file", "job", "s3", "gs", "az", "abfs", "abfss"}

var validName = regexp.MustCompile(`^[a-z][a-z0-9_-]{1,31}$`)

// CheckName returns an error if a source may not have this name.
func CheckName(name string) error {
	if !validName.MatchString(name) {
		return errors.New("must have 2 to 32 characters: lower-case letters, digits, _ and -, beginning with a letter")
	}
	if slices.Contains(reserved, name) {
		return fmt.Errorf("must not be %s, which has another meaning in inputs", name)
	}
	return nil
}

// CleanPrefix returns the path of a folder with a slash at its end and without empty elements.
func CleanPrefix(folder string) (string, error) {
	elements := slices.DeleteFunc(strings.Split(folder, "/"), func(e string) bool { return e == "" || e == "." })
	if strings.HasPrefix(folder, "/") || len(elements) == 0 || slices.Contains(elements, "..") {
		return "", errors.New("must be the path of a folder within the source, such as reviews/, without .. and without a slash at its beginning")
	}
	return strings.Join(elements, "/") + "/", nil
}

// Sources are the sources of a node. A nil *Sources has none.
type Sources struct{ all []Source }

// New returns the sources of a node.
func New(all []Source) *Sources { return &Sources{all} }

// Names returns the names of the sources that an account may read, sorted.
func (s *Sources) Names(account string) []string {
	return s.names(account, func(source *Source) bool { return !source.WriteOnly })
}

// names returns the names of the sources that an account may use, and for which may returns true,
// sorted.
func (s *Sources) names(account string, may func(*Source) bool) (names []string) {
	if s == nil {
		return nil
	}
	for i, source := range s.all {
		if may(&s.all[i]) && (len(source.Accounts) == 0 || slices.Contains(source.Accounts, account)) {
			names = append(names, source.Name)
		}
	}
	slices.Sort(names)
	return names
}

// SplitName splits inputs of the form NAME:PATTERN. ok is false for inputs of another form, such
// as a URL.
func SplitName(inputs string) (name, pattern string, ok bool) {
	name, pattern, ok = strings.Cut(inputs, ":")
	return name, pattern, ok && CheckName(name) == nil && !strings.HasPrefix(pattern, "//")
}

// Find returns the files that inputs of the form NAME:PATTERN name. The error is
// rowmill.ErrNotFound if the account has no source with this name; other errors name the fault
// of the pattern.
func (s *Sources) Find(account, inputs string) (*Files, error) {
	name, text, ok := SplitName(inputs)
	if !ok || !slices.Contains(s.Names(account), name) {
		return nil, rowmill.ErrNotFound
	}
	at := slices.IndexFunc(s.all, func(source Source) bool { return source.Name == name })
	f := &Files{source: &s.all[at]}
	var err error
	if f.pattern, err = parsePattern(text); err != nil {
		return nil, err
	}
	inside := func(prefix string) bool { return strings.HasPrefix(f.pattern.literal, prefix) }
	if allowed := f.source.Prefixes; len(allowed) > 0 && !slices.ContainsFunc(allowed, inside) {
		return nil, fmt.Errorf("the pattern must begin with a folder that may be read: %s", strings.Join(allowed, ", "))
	}
	return f, nil
}

// Files are the files of a source that match a pattern.
type Files struct {
	source  *Source
	pattern pattern
}

// A File is one version of a file of a source. It is stored as JSON, so its JSON names never change.
type File struct {
	Path string `json:"path"` // path within the source
	Size int64  `json:"size"` // bytes
	ETag string `json:"etag"` // changes with the content
	Rows int64  `json:"rows"` // number of its rows; 0 until the job has read the file
}

// String returns the name of the source and the pattern, as a client writes them.
func (f *Files) String() string { return f.source.Name + ":" + f.pattern.text }

// Title returns the name of the source and the path of a file.
func (f *Files) Title(file File) string { return f.source.Name + ":" + file.Path }

// List returns the matching files that are not empty, sorted by path. It returns a failure if
// there are none.
func (f *Files) List(ctx context.Context) ([]File, error) { return f.ListEarly(ctx, nil, nil) }

// ListEarly is List for a reader that reads the first files while the others are listed. When
// FirstFiles files are found, ListEarly calls begun once with these files, if they are sorted. The
// returned list begins with these versions of the files, even if the files have changed meanwhile.
// first has the files of an earlier call of begun; then this call has no begun.
func (f *Files) ListEarly(ctx context.Context, first []File, begun func(first []File)) ([]File, error) {
	infos, err := f.source.Place.List(ctx, f.pattern.literal, f.pattern.matches, func(found []blob.ObjectInfo) bool {
		if begun != nil && len(found) == FirstFiles && slices.IsSortedFunc(found, compareKeys) {
			if first = withContent(found); len(first) > 0 {
				begun(first)
				begun = nil
			}
		}
		return len(found) <= MaxFiles
	})
	switch {
	case len(infos) > MaxFiles:
		return nil, rowmill.Failf(rowmill.CodeDownloadFailed, "More than %d files match %s. Use a narrower pattern, or several jobs.", MaxFiles, f)
	case err != nil:
		return nil, f.failure(ctx, err, "The files of %s cannot be listed.", f)
	}
	slices.SortFunc(infos, compareKeys)
	others := slices.DeleteFunc(withContent(infos), func(file File) bool {
		_, found := slices.BinarySearchFunc(first, file.Path, func(f File, path string) int { return strings.Compare(f.Path, path) })
		return found
	})
	files := append(slices.Clip(first), others...)
	if len(files) == 0 {
		return nil, rowmill.Failf(rowmill.CodeDownloadFailed,
			"No file with content matches %s. To read all files of a folder, end the pattern with /**. A wildcard matches no name that begins with . or _.", f)
	}
	return files, nil
}

func compareKeys(a, b blob.ObjectInfo) int { return strings.Compare(a.Key, b.Key) }

// withContent returns the files that are not empty.
func withContent(infos []blob.ObjectInfo) []File {
	files := make([]File, 0, len(infos))
	for _, info := range infos {
		if info.Size > 0 {
			files = append(files, File{Path: info.Key, Size: info.Size, ETag: info.ETag})
		}
	}
	return files
}

// Open opens a file that List returned. Its errors, and the errors of reading the object, are
// failures that name the file.
func (f *Files) Open(ctx context.Context, file File) (blob.Object, error) {
	object, err := f.source.Place.Open(ctx, blob.ObjectInfo{Key: file.Path, Size: file.Size, ETag: file.ETag})
	if err != nil {
		return nil, f.explain(ctx, file, err)
	}
	return &opened{Object: object, ctx: ctx, files: f, file: file}, nil
}

// opened is an open file with errors that name the file.
type opened struct {
	blob.Object
	ctx   context.Context //nolint:containedctx // an open file lives as long as this context
	files *Files
	file  File
}

func (o *opened) ReadAt(p []byte, off int64) (int, error) {
	n, err := o.Object.ReadAt(p, off)
	if err != nil && n < len(p) && off+int64(n) < o.file.Size {
		err = o.files.explain(o.ctx, o.file, err)
	}
	return n, err
}

// explain returns the failure for an error of opening or reading a file.
func (f *Files) explain(ctx context.Context, file File, err error) error {
	if errors.Is(err, blob.ErrLost) || errors.Is(err, rowmill.ErrNotFound) {
		return rowmill.Failf(rowmill.CodeDownloadFailed, "The file %s has changed or was removed after this job had listed it. Submit the job again.", f.Title(file))
	}
	return f.failure(ctx, err, "The file %s cannot be read.", f.Title(file))
}

// failure returns the failure for an error of the place. It returns the error of ctx if ctx has
// ended.
func (f *Files) failure(ctx context.Context, err error, format string, args ...any) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	failure := rowmill.Failf(rowmill.CodeDownloadFailed, format+" Ask the operator to check the setting sources."+f.source.Name+", then resume the job.", args...)
	failure.AdditionalContext = err.Error()
	return failure
}
