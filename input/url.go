package input

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"strconv"
	"strings"
)

// maxURL is the longest URL, in bytes. Presigned URLs with session tokens have
// about 2 KiB.
const maxURL = 8 << 10

// ValidateURL checks the form of a URL when a job is submitted. It does not connect to
// the server. Its error messages never contain the URL, because the URL may be a
// secret.
func ValidateURL(raw string) error {
	_, err := parseURL(raw)
	return err
}

// FileNameFromURL returns the file name in a URL: the last part of its path. It returns an empty
// string if the URL has no path or is not valid.
func FileNameFromURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Path == "" {
		return ""
	}
	return path.Base(u.Path)
}

// DescribeURL returns a URL with an ellipsis in place of its user, its folders and its query, which
// may be secrets. It returns an empty string for an empty URL and for one that is not valid.
func DescribeURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return ""
	}
	folder, name := path.Split(u.EscapedPath())
	if folder != "" && folder != "/" {
		folder = "/…/"
	}
	text := u.Scheme + "://"
	if u.User != nil {
		text += "…@"
	}
	text += u.Host + folder + name
	if u.RawQuery != "" {
		text += "?…"
	}
	return text
}

func parseURL(raw string) (*url.URL, error) {
	if len(raw) > maxURL {
		return nil, fmt.Errorf("the URL has %d bytes, more than %d", len(raw), maxURL)
	}
	if strings.TrimSpace(raw) != raw || strings.ContainsFunc(raw, func(c rune) bool { return c <= ' ' || c == 0x7F }) {
		return nil, errors.New("the URL contains spaces or control characters; escape or remove them")
	}
	u, err := url.Parse(raw)
	if err != nil { // the error of url.Parse contains the URL, so it is not wrapped
		return nil, errors.New("the input is neither a list of rows nor a URL that can be parsed; give an http or https URL")
	}
	switch u.Scheme {
	case "http", "https":
	case "s3", "gs", "az", "abfs", "abfss":
		return nil, fmt.Errorf("%s:// addresses are not accepted; give an https URL, for example a presigned one for GET", u.Scheme)
	case "":
		return nil, errors.New("the input is a string that is not a URL; give an http or https URL, or a list of rows")
	default:
		return nil, errors.New("the URL's scheme is not supported; give an http or https URL")
	}
	if u.Hostname() == "" {
		return nil, errors.New("the URL has no host")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return nil, errors.New("the URL's port is not between 1 and 65535")
		}
	}
	if u.User != nil {
		return nil, errors.New("the URL contains a user name or password; use a presigned URL instead")
	}
	return u, nil
}
