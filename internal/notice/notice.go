// Package notice reads the file NOTICE, which lists the modules in the binary under
// their licences.
package notice

import (
	"fmt"
	"os"
	"strings"
)

// Read returns the licence of each module in the file, by module path, as an SPDX name
// such as "MIT". Several licences that apply together are joined by " and ".
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
