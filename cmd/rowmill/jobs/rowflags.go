package jobs

import (
	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/cmd/rowmill/command"
	"github.com/rowmill/rowmill/input"
)

// addRowFlags adds the flags that say how each row is run.
func (s *submitFlags) addRowFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVarP(&s.models, "model", "m", nil, "model or Function; give it 2 to 4 times to run the same rows with each (default: gpt-oss-20b, or the only model that is served)")
	flags.StringVarP(&s.Column, "column", "c", "", "column or field with the text to run")
	flags.StringVar(&s.IDColumn, "id-column", "", "column of a table with IDs, which are copied into the results")
	flags.StringVar(&s.Output, "output-column", "", "name of the column with the answers in the results (default: the job's ID)")
	flags.StringVar(&s.kind, "input-format", kindAuto, kindAuto+", csv, tsv, parquet, jsonl or lines")
	flags.BoolVar(&s.Messages, "messages", false, "each row is a chat: a list of messages with role and content, or its JSON text")
	flags.StringVar(&s.prompt, "prompt", "", "prompt of each row, or @FILE: {{column}} is replaced by the value of the column")
	flags.StringVar(&s.run, "function", "", "file with the definition of a Function for this job, as JSON: model, prompt, inputs and more")
	flags.StringSliceVar(&s.Keep, "keep", nil, "columns of a table to repeat in the results: '*' or names separated by commas")
	flags.Int64Var(&s.Limit, "limit", 0, "run at most this many rows (default: all)")
	flags.StringVar((*string)(&s.Sample), "sample", "", "rows to run with --limit: first or random (default: first)")
	flags.StringVarP(&s.system, "system-prompt", "s", "", "system prompt, or @FILE to read it from a file")
	flags.StringVar(&s.schema, "schema", "", "file with a JSON Schema that every answer must conform to")
	flags.BoolVar(&s.Repair, "repair", false, "with --schema: if an answer has words or a code fence around its JSON, keep only the JSON")
	flags.StringArrayVarP(&s.params, "param", "p", nil, "sampling parameter NAME=VALUE; VALUE is JSON, or text if it is not valid JSON; repeatable")
	flags.BoolVar(&s.SeedPerRow, "seed-per-row", false, "give every row its own random seed")
	flags.BoolVar(&s.dedup, "dedup", false, "run equal rows once: the copies get the same answer and use no tokens (default: as jobs.dedup of the service says)")
	flags.BoolVar(&s.NoTruncate, "no-truncate", false, "fail the job if a row is too long, rather than cutting the row")
	command.CompleteFlagValues(cmd, "sample", string(rowmill.SampleFirst), string(rowmill.SampleRandom))
	command.CompleteFlagValues(cmd, "input-format", append([]string{kindAuto}, input.Formats()...)...)
}
