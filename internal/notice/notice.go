// Package notice reads NOTICE, which names the modules that the binary is linked
// from, each under its licence.
package notice

import (
	"fmt"
	"os"
	"strings"
)

// Read returns the licence of each module that the file names by its path, as
// SPDX writes it: "MIT", or several joined by " and ", which all hold.
func Read(path string) (map[string]string, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the caller's file
	if err != nil {
		return nil, err
	}
	named := map[string]string{}
	licence := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		if head, is := strings.CutSuffix(line, ":"); is && !strings.HasPrefix(line, " ") {
			licence = head
		}
		module, is := strings.CutPrefix(line, "  ")
		if !is {
			continue
		}
		if named[module] != "" || licence == "" {
			return nil, fmt.Errorf("%s: %s is under %q and %q", path, module, named[module], licence)
		}
		named[module] = licence
	}
	return named, nil
}
