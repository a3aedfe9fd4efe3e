// Package command is the one way to declare a command that uses a service: how it finds
// its client, which flags it shares with others, and how it prints the answers. It
// knows no single command.
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

// A Set is shared by the commands of a group: the service, and flags that several
// commands have.
type Set struct {
	connect.Options
	Account string // set by the flag of OfAccount
	form    string // set by the flag of Prints
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

// Does sets the body of a command.
func (s *Set) Does(cmd *cobra.Command, body Body) *cobra.Command {
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

// Prints is like Does, for a body that prints with Print or Table. It adds the flag
// --print. forms are table and json if none are named; the first is the default.
func (s *Set) Prints(cmd *cobra.Command, body Body, forms ...string) *cobra.Command {
	if len(forms) == 0 {
		forms = []string{"table", "json"}
	}
	checked := PrintFlag(cmd, forms...)
	run := s.Does(cmd, body).RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if s.form, err = checked(); err != nil {
			return err
		}
		return run(cmd, args)
	}
	return cmd
}

// OfAccount adds the flag --account, for commands that may work on another account.
func (s *Set) OfAccount(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&s.Account, "account", "", "the account (default: that of the key)")
	return cmd
}

// JSON reports whether the user asked for the service's JSON.
func (s *Set) JSON() bool { return s.form == "json" }

// Print prints a document of the service, or the text for people.
func (s *Set) Print(document any, text func(w io.Writer) error) error {
	if s.JSON() {
		return terminal.JSON(s.Term.Out, document)
	}
	return text(s.Term.Out)
}

// Table is like Print, with a table for people.
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
