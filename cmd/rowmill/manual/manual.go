// Package manual writes pages for man(1) from the command tree: one page for each
// command, with the text of its --help. It does not depend on any single command.
package manual

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Command returns the command `manual DIR`, which the build of packages runs. The
// version and the date, which is in RFC 3339 or empty, appear in the footer of each
// page.
func Command(version, date string) *cobra.Command {
	return &cobra.Command{
		Use:    "manual DIR",
		Short:  "Write the manual pages of all commands into a directory",
		Long:   "Write the manual pages of all commands into a directory that exists, a page for\neach: rowmill.1, rowmill-serve.1 and so on. The build of packages uses this command.",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return writePages(cmd.Root(), args[0], formatFooter(version, date))
		},
	}
}

func formatFooter(version, date string) string {
	if t, err := time.Parse(time.RFC3339, date); err == nil {
		date = t.UTC().Format(time.DateOnly)
	}
	return fmt.Sprintf(`"%s" "Rowmill %s" "Rowmill"`, escapeRoff(date), escapeRoff(version))
}

func writePages(cmd *cobra.Command, dir, footer string) error {
	file := filepath.Join(dir, pageName(cmd)+".1")
	if err := os.WriteFile(file, []byte(RenderPage(cmd, footer)), 0o644); err != nil { //nolint:gosec // readable by all users
		return fmt.Errorf("write a page: %w", err)
	}
	for _, below := range cmd.Commands() {
		if !below.IsAvailableCommand() {
			continue
		}
		if err := writePages(below, dir, footer); err != nil {
			return err
		}
	}
	return nil
}

// pageName returns a command's name in the manual: rowmill-jobs-submit.
func pageName(cmd *cobra.Command) string {
	return strings.ReplaceAll(cmd.CommandPath(), " ", "-")
}

// RenderPage returns the manual page of a command, in the man(7) format. The footer is the
// end of the page's .TH line, after the name and the section.
func RenderPage(cmd *cobra.Command, footer string) string {
	p := &pageWriter{}
	p.writeLine(".TH %q 1 %s", strings.ToUpper(pageName(cmd)), footer)
	p.writeSection("NAME")
	p.writeLine(`%s \- %s`, escapeRoff(pageName(cmd)), escapeRoff(cmd.Short))
	p.writeSection("SYNOPSIS")
	p.writeLine(`.B %s`, escapeRoff(cmd.UseLine()))
	p.writeSection("DESCRIPTION")
	p.writeText(cmp.Or(cmd.Long, cmd.Short))
	p.writeSubcommands(cmd)
	p.writeFlags("OPTIONS", cmd.NonInheritedFlags())
	p.writeFlags("OPTIONS OF PARENT COMMANDS", cmd.InheritedFlags())
	if cmd.Example != "" {
		p.writeSection("EXAMPLES")
		p.writeVerbatim(strings.Split(strings.Trim(cmd.Example, "\n"), "\n"))
	}
	if cmd.HasParent() {
		p.writeSection("SEE ALSO")
		p.writeLine(".BR %s (1)", escapeRoff(pageName(cmd.Parent())))
	}
	return p.String()
}

type pageWriter struct{ strings.Builder }

func (p *pageWriter) writeLine(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

func (p *pageWriter) writeSection(name string) { p.writeLine(".SH %s", name) }

func (p *pageWriter) writeSubcommands(cmd *cobra.Command) {
	begun := false
	for _, below := range cmd.Commands() {
		if !below.IsAvailableCommand() {
			continue
		}
		if !begun {
			p.writeSection("COMMANDS")
			begun = true
		}
		p.writeLine(".TP\n.BR %s (1)\n%s", escapeRoff(pageName(below)), escapeRoff(below.Short))
	}
}

func (p *pageWriter) writeFlags(name string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	p.writeSection(name)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Deprecated != "" {
			return
		}
		names := `\fB` + escapeRoff("--"+f.Name) + `\fR`
		if f.Shorthand != "" {
			names = `\fB` + escapeRoff("-"+f.Shorthand) + `\fR, ` + names
		}
		value, usage := pflag.UnquoteUsage(f)
		switch {
		case f.NoOptDefVal != "" && value != "" && value != "bool":
			names += `[=\fI` + escapeRoff(value) + `\fR]`
		case value != "" && f.NoOptDefVal == "":
			names += ` \fI` + escapeRoff(value) + `\fR`
		}
		p.writeLine(".TP\n%s\n%s", names, escapeRoff(usage+formatDefault(f)))
	})
}

// formatDefault returns a text with the default of a flag; it is empty for a zero value.
func formatDefault(f *pflag.Flag) string {
	switch f.DefValue {
	case "", "0", "0s", "false", "[]":
		return ""
	}
	return fmt.Sprintf(" (default %s)", f.DefValue)
}

// writeText writes paragraphs of running text. It writes indented lines unchanged.
func (p *pageWriter) writeText(text string) {
	for paragraph := range strings.SplitSeq(strings.Trim(text, "\n"), "\n\n") {
		lines := strings.Split(strings.Trim(paragraph, "\n"), "\n")
		p.writeLine(".PP")
		for len(lines) > 0 {
			indented := strings.HasPrefix(lines[0], "  ")
			n := 1
			for n < len(lines) && strings.HasPrefix(lines[n], "  ") == indented {
				n++
			}
			if indented {
				p.writeVerbatim(lines[:n])
			} else {
				for _, line := range lines[:n] {
					p.writeLine("%s", escapeRoff(line))
				}
			}
			lines = lines[n:]
		}
	}
}

func (p *pageWriter) writeVerbatim(lines []string) {
	p.writeLine(".nf")
	for _, line := range lines {
		p.writeLine("%s", escapeRoff(line))
	}
	p.writeLine(".fi")
}

// escapeRoff quotes all characters with a meaning in man(7).
func escapeRoff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, `"`, `\(dq`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}
