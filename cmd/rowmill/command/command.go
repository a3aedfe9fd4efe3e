// Package command is the one way to declare a command that speaks to a
// service: where its client comes from, which flags it shares with others, and
// how it prints what the service has answered. It knows no command itself.
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

// Help ends the long help of a group: where service and key come from, and
// what the exit codes mean.
const Help = connect.Help + "\n\n" + exit.Help

// A Set is what the commands of a group share: the service and the flags that
// several of them have.
type Set struct {
	connect.Options
	Account string // of OfAccount
	form    string // one of those of Prints
}

// A Body is what a command does with the service.
type Body func(ctx context.Context, api *client.Client, args []string) error

// Group puts commands below one that only shows its help. The flags that name
// the service are for all of them.
func (s *Set) Group(cmd *cobra.Command, below ...*cobra.Command) *cobra.Command {
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	s.Flags(cmd)
	cmd.AddCommand(below...)
	return cmd
}

// Does gives a command its body.
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

// Prints is Does for a body that prints with Print or Table. It adds the flag
// of how to print; forms are table and json unless others are named, the first
// one being the default.
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

// OfAccount adds the flag of commands that may be about another account.
func (s *Set) OfAccount(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&s.Account, "account", "", "the account (default: that of the key)")
	return cmd
}

// JSON reports whether the document of the service is asked for.
func (s *Set) JSON() bool { return s.form == "json" }

// Print prints a document of the service, or what text writes for a person.
func (s *Set) Print(document any, text func(w io.Writer) error) error {
	if s.JSON() {
		return terminal.JSON(s.Term.Out, document)
	}
	return text(s.Term.Out)
}

// Table is Print for a person who gets a table.
func (s *Set) Table(document any, rows func(row terminal.Row)) error {
	return s.Print(document, func(w io.Writer) error { return terminal.Table(w, rows) })
}

// PrintFlag adds the flag of how to print, the first form being the default.
// It returns a function for the form that was chosen.
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

// Choices completes the values of a flag, which must be there.
func Choices(cmd *cobra.Command, flag string, values ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err)
	}
}
