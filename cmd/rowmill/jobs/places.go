package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/input/sources"
)

// `rowmill run` reads the files of a pattern, and writes a file of results for each of them, as a job
// over a source of a service does. The node of the run gets two sources: one with the input, and one
// for the results.
const (
	inputSource  = "input"
	outputSource = "output"
)

// isBucket reports whether an address names objects of S3.
func isBucket(address string) bool { return strings.HasPrefix(address, "s3://") }

// splitBucket splits s3://BUCKET/KEY.
func splitBucket(address string) (bucket, key string) {
	bucket, key, _ = strings.Cut(strings.TrimPrefix(address, "s3://"), "/")
	return "s3://" + bucket, key
}

// findInput sets the source of the node that has the input, if the only argument is a pattern or names
// objects of S3.
func (r *runCommand) findInput(args []string) error {
	if len(args) > 1 {
		return nil
	}
	if isBucket(args[0]) {
		r.node.Input, r.pattern = splitBucket(args[0])
		if r.pattern == "" {
			return fmt.Errorf("%s: name objects of the bucket, such as %s/*.parquet", args[0], r.node.Input)
		}
		return nil
	}
	arg := filepath.ToSlash(args[0])
	wildcard := strings.IndexAny(arg, "*?[")
	if _, err := os.Stat(args[0]); err == nil || isURL(arg) || wildcard < 0 {
		return nil
	}
	begin := strings.LastIndexByte(arg[:wildcard], '/') + 1
	r.pattern = arg[begin:]
	var err error
	r.node.Input, err = folderURL(arg[:begin])
	return err
}

// folderURL returns the URL of a local folder. An empty path means the working directory.
func folderURL(path string) (string, error) {
	path, err := filepath.Abs(path)
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(path)}).String(), err
}

// listInput returns the versions of the local files of the pattern that arg names.
func (r *runCommand) listInput(ctx context.Context, arg string) (versions []byte, err error) {
	folder, err := url.Parse(r.node.Input)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(folder.Path); err != nil {
		return nil, fmt.Errorf("%s: %w", arg, err)
	}
	place := sources.Source{Name: inputSource, Place: sources.NewFolder(folder.Path, nil)}
	files, err := sources.New([]sources.Source{place}).Find("", inputSource+":"+r.pattern)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", arg, err)
	}
	list, err := files.List(ctx)
	var failure *rowmill.Failure
	if errors.As(err, &failure) {
		err = errors.New(strings.ReplaceAll(failure.Message, files.String(), arg))
	}
	if err != nil {
		return nil, err
	}
	if len(list) > 1 {
		r.Term.Say("reading %d files as one input", len(list))
	}
	return json.Marshal(list)
}

// findOutput sets the source of the node for the results, if --output names a folder: an address in S3,
// a path with a slash at its end, or a folder that exists.
func (r *runCommand) findOutput() error {
	path := r.save.path
	isFolder := strings.HasSuffix(path, "/")
	if info, err := os.Stat(path); err == nil {
		isFolder = isFolder || info.IsDir()
	}
	switch {
	case path == "" || path == stdout || !isBucket(path) && !isFolder:
		return nil
	case r.save.want.Format != "" && r.save.want.Format != "parquet":
		return errors.New("--format: the files in a folder are Parquet; leave --format out, or name a file")
	case r.save.want.Inputs || r.save.want.Meta || r.save.want.Logprobs || r.save.want.Unpack:
		return errors.New("--output: the files in a folder have the answers and the columns of --keep; name a file for --include-inputs, --include-meta, --include-logprobs or --unpack")
	case r.Limit > 0:
		return errors.New("--limit: the files in a folder have all rows; name a file, such as -o try.parquet")
	case r.save.force:
		return errors.New("--force: a folder needs no --force, because files of the same names are replaced")
	case len(r.models) > 1:
		return errors.New("--model: the results of several models go to one file; name a file with --output")
	}
	folder := ""
	if isBucket(path) {
		r.node.Output, folder = splitBucket(path)
	} else {
		var err error
		if r.node.Output, err = folderURL(path); err == nil {
			err = os.MkdirAll(path, 0o755)
		}
		if err != nil {
			return fmt.Errorf("--output: %w", err)
		}
	}
	r.save.skip, r.save.want.Format, r.Sink = true, "parquet", outputSource+":"+folder
	return nil
}

// SourcesSetting returns the setting sources of the node, or an empty text if the run needs none. It uses
// the variables and the credentials file of AWS.
func (o LocalNodeOptions) SourcesSetting(getenv func(string) string) (string, error) {
	all := map[string]map[string]any{}
	for name, address := range map[string]string{inputSource: o.Input, outputSource: o.Output} {
		if address == "" {
			continue
		}
		place := map[string]any{"url": address, "write": name == outputSource}
		if isBucket(address) {
			place["region"] = cmp.Or(getenv("AWS_REGION"), getenv("AWS_DEFAULT_REGION"))
			place["endpoint"] = cmp.Or(getenv("AWS_ENDPOINT_URL_S3"), getenv("AWS_ENDPOINT_URL"))
			file := cmp.Or(getenv("AWS_SHARED_CREDENTIALS_FILE"), filepath.Join(getenv("HOME"), ".aws", "credentials"))
			if _, err := os.Stat(file); err == nil && getenv("AWS_ACCESS_KEY_ID") == "" {
				place["credentials"], place["credentials_file"], place["profile"] = "file", file, getenv("AWS_PROFILE")
			}
		}
		all[name] = place
	}
	if len(all) == 0 {
		return "", nil
	}
	text, err := json.Marshal(all)
	return string(text), err
}
