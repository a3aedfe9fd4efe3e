package sources

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"strings"
)

// maxPattern is the longest pattern, in bytes: the longest name of an object in S3.
const maxPattern = 1024

// anyFolders is the element of a pattern that matches any number of elements of a path.
const anyFolders = "**"

// A pattern chooses files by their paths. Its elements match elements of a path as path.Match
// does, and ** matches any number of elements. No wildcard at the beginning of an element matches
// a name that begins with . or _, because programs write such files for themselves.
type pattern struct {
	text     string   // the pattern without empty elements
	elements []string // the parts between slashes
	literal  string   // all matching paths begin with this text
}

// parsePattern checks a pattern and removes its empty elements.
func parsePattern(text string) (p pattern, err error) {
	switch {
	case text == "" || strings.HasSuffix(text, "/"):
		return p, errors.New("the pattern names no file; end it with a file name or a pattern, such as *.parquet or **")
	case len(text) > maxPattern:
		return p, fmt.Errorf("the pattern has %d bytes; it may have at most %d", len(text), maxPattern)
	case strings.HasPrefix(text, "/"):
		return p, errors.New("the pattern begins with a slash; paths begin at the source, so remove the slash")
	}
	isLiteral := true
	for element := range strings.SplitSeq(text, "/") {
		if element == "" || element == "." {
			continue
		}
		if _, err := path.Match(element, ""); err != nil {
			return p, fmt.Errorf("the part %q of the pattern is not complete; write \\[ or \\\\ for these characters themselves", element)
		}
		if len(p.elements) > 0 && isLiteral {
			p.literal += "/"
		}
		plain, whole := literalPrefix(element)
		if plain == ".." && whole {
			return p, errors.New("the pattern has the folder .., which is not allowed; paths begin at the source")
		}
		if isLiteral {
			p.literal += plain
		}
		isLiteral = isLiteral && whole
		p.elements = append(p.elements, element)
	}
	if len(p.elements) == 0 {
		return p, errors.New("the pattern names no file")
	}
	p.text = strings.Join(p.elements, "/")
	if p.elements[len(p.elements)-1] == anyFolders { // at the end ** matches the files, too
		p.elements = append(p.elements, "*")
	}
	return p, nil
}

// literalPrefix returns the beginning of an element up to its first wildcard. whole is true if the
// element has no wildcard.
func literalPrefix(element string) (prefix string, whole bool) {
	var b strings.Builder
	for i := 0; i < len(element); i++ {
		switch element[i] {
		case '*', '?', '[':
			return b.String(), false
		case '\\':
			i++
		}
		b.WriteByte(element[i])
	}
	return b.String(), true
}

// matches reports whether the pattern chooses the file with this path.
func (p pattern) matches(file string) bool {
	names := strings.Split(file, "/")
	folders, skipped := -1, 0 // the last ** so far, and the number of names before the names that it does not match
	at, n := 0, 0
	for n < len(names) {
		switch {
		case at < len(p.elements) && p.elements[at] == anyFolders:
			folders, skipped = at, n
			at++
		case at < len(p.elements) && matchesName(p.elements[at], names[n]):
			at++
			n++
		case folders >= 0 && !isHidden(names[skipped]):
			skipped++
			at, n = folders+1, skipped
		default:
			return false
		}
	}
	return at == len(p.elements)
}

// matchesName reports whether an element of a pattern matches an element of a path.
func matchesName(element, name string) bool {
	plain, _ := literalPrefix(element)
	if isHidden(name) && plain == "" {
		return false
	}
	matched, err := path.Match(element, name)
	return matched && err == nil
}

// isHidden reports whether wildcards skip a name.
func isHidden(name string) bool { return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") }

// A Partition is a column that a folder gives to all rows below it: day=2026-11-01.
type Partition struct{ Key, Value string }

// nullPartition is the value that programs write for a missing value.
const nullPartition = "__HIVE_DEFAULT_PARTITION__"

// Partitions returns the columns that the folders of a file give to its rows. A missing value is
// empty. If a key occurs several times, the last folder counts.
func (f File) Partitions() (all []Partition) {
	folders := strings.Split(path.Dir(f.Path), "/")
	for _, folder := range folders {
		key, value, found := strings.Cut(folder, "=")
		if !found || key == "" {
			continue
		}
		if plain, err := url.PathUnescape(value); err == nil {
			value = plain
		}
		if value == nullPartition {
			value = ""
		}
		for i := range all {
			if all[i].Key == key {
				all = append(all[:i], all[i+1:]...)
				break
			}
		}
		all = append(all, Partition{key, value})
	}
	return all
}
