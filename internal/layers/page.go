package layers

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// rowmillRoot is the name of the module's root package in the page. It has no layer in
// the table, because every package may import it.
const rowmillRoot = "rowmill"

var quoted = regexp.MustCompile("`([^`]+)`")

// MissingFolders returns one sentence for each folder in the table that has no package. Such
// an entry would silently permit imports later.
func (t ImportRules) MissingFolders(packages []Package) []string {
	named := slices.Concat(slices.Collect(maps.Keys(t.Layer)), slices.Collect(maps.Keys(t.Within)), t.Adapters, t.Programs, t.Helpers)
	for _, allowed := range t.Importers {
		named = append(named, allowed...)
	}
	for _, pair := range t.Separate {
		named = append(named, pair[0], pair[1])
	}
	slices.Sort(named)
	var missing []string
	for _, folder := range slices.Compact(named) {
		if !slices.ContainsFunc(packages, func(p Package) bool {
			path, inside := cutModulePath(p.Path)
			return inside && isUnder(path, folder)
		}) {
			missing = append(missing, fmt.Sprintf("the table names %q, which holds no package", folder))
		}
	}
	return missing
}

// PageDifferences returns one sentence for each difference between the table and a Markdown
// page. In the page, each row of a table begins with a number and with folders in
// backquotes: a layer and its folders, or a step and its packages.
func (t ImportRules) PageDifferences(page string) []string {
	want := maps.Clone(t.Layer)
	maps.Copy(want, t.Within)
	var wrong []string
	drawn := map[string]bool{}
	for line := range strings.Lines(page) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		level, err := strconv.Atoi(strings.TrimSpace(cells[1]))
		if err != nil {
			continue // a heading, or a row of a table without numbers
		}
		for _, match := range quoted.FindAllStringSubmatch(cells[2], -1) {
			folder := match[1]
			set, known := want[folder]
			switch {
			case folder == rowmillRoot:
			case drawn[folder]:
				wrong = append(wrong, fmt.Sprintf("the page places %q twice", folder))
			case !known:
				wrong = append(wrong, fmt.Sprintf("the page places %q, the table does not", folder))
			case set != level:
				wrong = append(wrong, fmt.Sprintf("the page places %q on %d, the table on %d", folder, level, set))
			}
			drawn[folder] = true
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(want)) {
		if !drawn[folder] {
			wrong = append(wrong, fmt.Sprintf("the table places %q, the page does not", folder))
		}
	}
	return wrong
}
