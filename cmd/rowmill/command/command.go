// Package command helps other packages to declare commands that use a service. It gives
// a command its client, adds the flags that several commands have, and prints answers.
// It contains no command of its own.
package command

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/connect"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

// Help is the end of the help text of a command group: where the address of the service
// and the API key come from, and the exit codes.
const Help = connect.Help + "\n\n" + exit.Help

// A GroupOptions holds the data that the commands of a group share: the options of the service,
// and the values of flags that several commands have.
type GroupOptions struct {
	connect.Options
	Account string // set by the flag --account
	form    string // value of the flag --print, such as table or json
}

// A Body does the work of a command. api is a client of the service.
type Body func(ctx context.Context, api *client.Client, args []string) error

// AddSubcommands adds subcommands to cmd, which itself only shows its help. It also adds
// the flags that name the service; they apply to all these commands.
func (s *GroupOptions) AddSubcommands(cmd *cobra.Command, subcommands ...*cobra.Command) *cobra.Command {
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	s.AddFlags(cmd)
	cmd.AddCommand(subcommands...)
	return cmd
}

// SetBody makes cmd run body. It creates the client for body and closes it afterwards.
func (s *GroupOptions) SetBody(cmd *cobra.Command, body Body) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		api, err := s.NewClient()
		if err != nil {
			return err
		}
		defer api.Close()
		return body(cmd.Context(), api, args)
	}
	return cmd
}

// SetPrintingBody is like SetBody, for a body that prints with Print or PrintTable. It also
// adds the flag --print. forms are the values of the flag, and the first form is the
// default; without forms, the values are table and json.
func (s *GroupOptions) SetPrintingBody(cmd *cobra.Command, body Body, forms ...string) *cobra.Command {
	if len(forms) == 0 {
		forms = []string{"table", "json"}
	}
	checked := AddPrintFlag(cmd, forms...)
	run := s.SetBody(cmd, body).RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if s.form, err = checked(); err != nil {
			return err
		}
		return run(cmd, args)
	}
	return cmd
}

// AddAccountFlag adds the flag --account, for commands that can work on another account.
func (s *GroupOptions) AddAccountFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&s.Account, "account", "", "the account (default: that of the key)")
	return cmd
}

// WantsJSON reports whether the user asked for WantsJSON output.
func (s *GroupOptions) WantsJSON() bool { return s.form == "json" }

// Print writes the document as WantsJSON if the user asked for WantsJSON. Otherwise it calls
// text.
func (s *GroupOptions) Print(document any, text func(w io.Writer) error) error {
	if s.WantsJSON() {
		return terminal.WriteJSON(s.Term.Out, document)
	}
	return text(s.Term.Out)
}

// PrintTable is like Print, but prints the rows of a table if the user did not ask for WantsJSON.
// A table that is too wide for the terminal loses the columns leastImportant first.
func (s *GroupOptions) PrintTable(document any, rows func(row terminal.RowWriter), leastImportant ...string) error {
	return s.Print(document, func(io.Writer) error { return s.Term.PrintTable(rows, leastImportant...) })
}

// AddPrintFlag adds the flag --print with these forms as its values; the first form is the
// default. The returned function returns the chosen form, or an error for an invalid
// value.
func AddPrintFlag(cmd *cobra.Command, forms ...string) func() (string, error) {
	choice := strings.Join(forms, " or ")
	form := cmd.Flags().StringP("print", "o", forms[0], "how to print: "+choice)
	CompleteFlagValues(cmd, "print", forms...)
	return func() (string, error) {
		if !slices.Contains(forms, *form) {
			return "", exit.WithCode(exit.Usage, fmt.Errorf("-o must be %s, is %q", choice, *form))
		}
		return *form, nil
	}
}

// CompleteFlagValues makes shell completion offer values for a flag. It panics if the command has
// no such flag.
func CompleteFlagValues(cmd *cobra.Command, flag string, values ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err)
	}
}
