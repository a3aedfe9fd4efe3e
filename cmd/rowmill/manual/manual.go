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
			return writePages(cmd.Root(), args[0], footer(version, date))
		},
	}
}

func footer(version, date string) string {
	if t, err := time.Parse(time.RFC3339, date); err == nil {
		date = t.UTC().Format(time.DateOnly)
	}
	return fmt.Sprintf(`"%s" "Rowmill %s" "Rowmill"`, escape(date), escape(version))
}

func writePages(cmd *cobra.Command, dir, footer string) error {
	file := filepath.Join(dir, title(cmd)+".1")
	if err := os.WriteFile(file, []byte(Page(cmd, footer)), 0o644); err != nil { //nolint:gosec // readable by all users
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

// title returns a command's name in the manual: rowmill-jobs-submit.
func title(cmd *cobra.Command) string {
	return strings.ReplaceAll(cmd.CommandPath(), " ", "-")
}

// Page returns the manual page of a command, in the man(7) format. The footer is the
// end of the page's .TH line, after the name and the section.
func Page(cmd *cobra.Command, footer string) string {
	p := &page{}
	p.line(".TH %q 1 %s", strings.ToUpper(title(cmd)), footer)
	p.section("NAME")
	p.line(`%s \- %s`, escape(title(cmd)), escape(cmd.Short))
	p.section("SYNOPSIS")
	p.line(`.B %s`, escape(cmd.UseLine()))
	p.section("DESCRIPTION")
	p.text(cmp.Or(cmd.Long, cmd.Short))
	p.commands(cmd)
	p.flags("OPTIONS", cmd.NonInheritedFlags())
	p.flags("OPTIONS OF PARENT COMMANDS", cmd.InheritedFlags())
	if cmd.Example != "" {
		p.section("EXAMPLES")
		p.verbatim(strings.Split(strings.Trim(cmd.Example, "\n"), "\n"))
	}
	if cmd.HasParent() {
		p.section("SEE ALSO")
		p.line(".BR %s (1)", escape(title(cmd.Parent())))
	}
	return p.String()
}

type page struct{ strings.Builder }

func (p *page) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

func (p *page) section(name string) { p.line(".SH %s", name) }

func (p *page) commands(cmd *cobra.Command) {
	begun := false
	for _, below := range cmd.Commands() {
		if !below.IsAvailableCommand() {
			continue
		}
		if !begun {
			p.section("COMMANDS")
			begun = true
		}
		p.line(".TP\n.BR %s (1)\n%s", escape(title(below)), escape(below.Short))
	}
}

func (p *page) flags(name string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	p.section(name)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Deprecated != "" {
			return
		}
		names := `\fB` + escape("--"+f.Name) + `\fR`
		if f.Shorthand != "" {
			names = `\fB` + escape("-"+f.Shorthand) + `\fR, ` + names
		}
		value, usage := pflag.UnquoteUsage(f)
		switch {
		case f.NoOptDefVal != "" && value != "" && value != "bool":
			names += `[=\fI` + escape(value) + `\fR]`
		case value != "" && f.NoOptDefVal == "":
			names += ` \fI` + escape(value) + `\fR`
		}
		p.line(".TP\n%s\n%s", names, escape(usage+defaultText(f)))
	})
}

// defaultText returns a text with the default of a flag; it is empty for a zero value.
func defaultText(f *pflag.Flag) string {
	switch f.DefValue {
	case "", "0", "0s", "false", "[]":
		return ""
	}
	return fmt.Sprintf(" (default %s)", f.DefValue)
}

// text writes paragraphs of running text. It writes indented lines unchanged.
func (p *page) text(text string) {
	for paragraph := range strings.SplitSeq(strings.Trim(text, "\n"), "\n\n") {
		lines := strings.Split(strings.Trim(paragraph, "\n"), "\n")
		p.line(".PP")
		for len(lines) > 0 {
			indented := strings.HasPrefix(lines[0], "  ")
			n := 1
			for n < len(lines) && strings.HasPrefix(lines[n], "  ") == indented {
				n++
			}
			if indented {
				p.verbatim(lines[:n])
			} else {
				for _, line := range lines[:n] {
					p.line("%s", escape(line))
				}
			}
			lines = lines[n:]
		}
	}
}

func (p *page) verbatim(lines []string) {
	p.line(".nf")
	for _, line := range lines {
		p.line("%s", escape(line))
	}
	p.line(".fi")
}

// escape quotes all characters with a meaning in man(7).
func escape(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, `"`, `\(dq`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}
