// Package command declares the commands that use a service. It owns the client that
// such a command gets, the flags that several commands have, and the output of answers.
// It contains no single command.
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

// Help ends the long help of a group: the sources of service and key, and the exit
// codes.
const Help = connect.Help + "\n\n" + exit.Help

// A Set holds the data that the commands of a group share: the options of the service,
// and the values of flags that several commands have.
type Set struct {
	connect.Options
	Account string // set by the flag --account
	form    string // set by the flag --print
}

// A Body is the action of a command, with a client of the service.
type Body func(ctx context.Context, api *client.Client, args []string) error

// Group puts commands below one that only shows its help. The flags that name the
// service apply to all these commands.
func (s *Set) Group(cmd *cobra.Command, below ...*cobra.Command) *cobra.Command {
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	s.Flags(cmd)
	cmd.AddCommand(below...)
	return cmd
}

// SetBody sets the body of a command. It makes the client for the body and closes it.
func (s *Set) SetBody(cmd *cobra.Command, body Body) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		api, err := s.Client()
		if err != nil {
			return err
		}
		defer api.Close()
		return body(cmd.Context(), api, args)
	}
	return cmd
}

// SetPrintingBody is like SetBody, for a body that prints with Print or Table. It adds
// the flag --print with forms as its values; the first form is the default. Without
// forms, they are table and json.
func (s *Set) SetPrintingBody(cmd *cobra.Command, body Body, forms ...string) *cobra.Command {
	if len(forms) == 0 {
		forms = []string{"table", "json"}
	}
	checked := PrintFlag(cmd, forms...)
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
func (s *Set) AddAccountFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&s.Account, "account", "", "the account (default: that of the key)")
	return cmd
}

// JSON reports whether the user asked for the service's JSON.
func (s *Set) JSON() bool { return s.form == "json" }

// Print writes the document as JSON if the user asked for JSON, and else calls text.
func (s *Set) Print(document any, text func(w io.Writer) error) error {
	if s.JSON() {
		return terminal.JSON(s.Term.Out, document)
	}
	return text(s.Term.Out)
}

// Table is like Print, but if the user did not ask for JSON, it prints a table.
func (s *Set) Table(document any, rows func(row terminal.Row)) error {
	return s.Print(document, func(w io.Writer) error { return terminal.Table(w, rows) })
}

// PrintFlag adds the flag --print; the first form is the default. The function that it
// returns gives the chosen form.
func PrintFlag(cmd *cobra.Command, forms ...string) func() (string, error) {
	choice := strings.Join(forms, " or ")
	form := cmd.Flags().StringP("print", "o", forms[0], "how to print: "+choice)
	Choices(cmd, "print", forms...)
	return func() (string, error) {
		if !slices.Contains(forms, *form) {
			return "", exit.With(exit.Usage, fmt.Errorf("-o must be %s, is %q", choice, *form))
		}
		return *form, nil
	}
}

// Choices adds completion for the values of a flag. It panics if the command has no
// such flag.
func Choices(cmd *cobra.Command, flag string, values ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err)
	}
}
