package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill/cmd/rowmill/accounts"
	"github.com/rowmill/rowmill/cmd/rowmill/backups"
	"github.com/rowmill/rowmill/cmd/rowmill/bench"
	"github.com/rowmill/rowmill/cmd/rowmill/connect"
	"github.com/rowmill/rowmill/cmd/rowmill/doctor"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/functions"
	"github.com/rowmill/rowmill/cmd/rowmill/jobs"
	"github.com/rowmill/rowmill/cmd/rowmill/manual"
	"github.com/rowmill/rowmill/cmd/rowmill/nodes"
	"github.com/rowmill/rowmill/cmd/rowmill/quotas"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

// run executes a command line and returns the exit code.
func run(ctx context.Context, term *terminal.IO, args []string) int {
	root := newRootCommand(term)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var signal exit.Signal
	if err != nil && !errors.As(err, &signal) {
		fmt.Fprintln(term.Err, "rowmill: "+err.Error())
	}
	return exit.Code(err)
}

func newRootCommand(term *terminal.IO) *cobra.Command {
	root := &cobra.Command{
		Use:   "rowmill",
		Short: "Batch inference: post a million rows, get one Parquet file in order",
		Long: `Rowmill runs language models over many rows: post a million rows, and get one
Parquet file in the order of the input.

Start a node. It uses the inference servers that it finds on this machine. If there
is none, and no GPU either, it simulates the model's answers:

    rowmill serve

It prints an API key. In another shell:

    export ROWMILL_API_KEY=…
    rowmill jobs submit prompts.csv --column prompt

To use other servers that speak OpenAI's API, such as vLLM, SGLang, llama.cpp or
Ollama, name their addresses:

    rowmill serve --engine http://127.0.0.1:8000

` + exit.Help,
		Args:          rejectUnknownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(term.In)
	root.SetOut(term.Out)
	root.SetErr(term.Err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return exit.WithCode(exit.Usage, fmt.Errorf("%w; see %s --help", err, cmd.CommandPath()))
	})
	build := readBuildMetadata()
	service := connect.Options{Term: term, UserAgent: "rowmill/" + build.Version}
	root.AddCommand(
		serveCommand(term), jobs.RunCommand(jobs.Config{Options: service}, startLocalNode(term)), jobs.Command(jobs.Config{Options: service}),
		quotas.Command(service), quotas.Usage(service), accounts.Keys(service), accounts.Settings(service), accounts.Webhooks(service), nodes.Command(service), nodes.Actors(service), nodes.Models(service), nodes.Engines(service), nodes.GPUs(service), nodes.Servers(service), doctor.Command(service), bench.Command(service), functions.Command(service),
		backups.Command(service), restoreCommand(term), migrateCommand(term),
		simCommand(term), guardCommand(), configCommand(term), storageCommand(term), versionCommand(term), manual.Command(build.Version, build.Built),
	)
	for _, cmd := range root.Commands() {
		wrapArgErrors(cmd)
	}
	return root
}

// rejectUnknownCommand returns a usage error if the first argument is not a subcommand of
// cmd. The error suggests subcommands with similar names.
func rejectUnknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q for %s", args[0], cmd.CommandPath())
	cmd.SuggestionsMinimumDistance = 2 // suggest names that differ in at most 2 letters
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return exit.WithCode(exit.Usage, errors.New(text))
}

// wrapArgErrors makes cmd and all its subcommands report wrong arguments as usage errors.
func wrapArgErrors(cmd *cobra.Command) {
	check := cmd.Args
	if cmd.HasSubCommands() {
		check = rejectUnknownCommand
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if check == nil {
			return nil
		}
		err := check(cmd, args)
		var coded *exit.Error
		if err == nil || errors.As(err, &coded) {
			return err
		}
		return exit.WithCode(exit.Usage, fmt.Errorf("%w; usage: %s", err, cmd.UseLine()))
	}
	for _, sub := range cmd.Commands() {
		wrapArgErrors(sub)
	}
}
