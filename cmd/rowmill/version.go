package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill/cmd/rowmill/command"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

// The build sets these variables with -ldflags -X. After a plain `go build` they are
// empty, and readBuildMetadata uses the values that Go recorded from version control.
var (
	version string
	commit  string
	built   string
)

// buildMetadata describes this program.
type buildMetadata struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Built   string `json:"built"` // time of the commit or the build, RFC 3339
	Go      string `json:"go"`
}

// readBuildMetadata returns the version, commit and time of the build. For values that the
// build did not set, it uses the values that Go recorded.
func readBuildMetadata() buildMetadata {
	b := buildMetadata{Version: version, Commit: commit, Built: built, Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	dirty := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && b.Commit == "":
			b.Commit = s.Value
		case s.Key == "vcs.time" && b.Built == "":
			b.Built = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if commit == "" && b.Commit != "" {
		b.Commit += dirty
	}
	if b.Version == "" {
		b.Version = info.Main.Version
	}
	if b.Version == "" || b.Version == "(devel)" {
		b.Version = "devel"
	}
	return b
}

func versionCommand(term *terminal.IO) *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Print the version", Args: cobra.NoArgs}
	chosen := command.AddPrintFlag(cmd, "text", "json")
	cmd.RunE = func(*cobra.Command, []string) error {
		form, err := chosen()
		if err != nil {
			return err
		}
		b := readBuildMetadata()
		if form == "json" {
			return json.NewEncoder(term.Out).Encode(b)
		}
		_, err = fmt.Fprintf(term.Out, "rowmill %s (commit %s, %s, %s)\n", b.Version, cmp.Or(b.Commit, "unknown"), cmp.Or(b.Built, "unknown"), b.Go)
		return err
	}
	return cmd
}
