package jobs

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

// printEstimate prints the result of an estimate job that has succeeded.
func (c *jobCommands) printEstimate(job client.Job) error {
	if job.CostEstimate == nil && job.Estimate == nil {
		return exit.WithCode(exit.Failure, fmt.Errorf("%s has succeeded without an estimate", job.ID))
	}
	err := terminal.WriteTable(c.Term.Out, func(row terminal.RowWriter) {
		row("model", job.Model)
		row("rows", formatRows(job))
		writeEstimate(row, job)
	})
	if err == nil {
		c.Term.Say("to run the other rows too: rowmill jobs resume %s --rows rest", job.ID)
	}
	return err
}

// writeEstimate writes the results of an estimate job to a table, one name and value
// per line.
func writeEstimate(row terminal.RowWriter, job client.Job) {
	e := job.Estimate
	switch {
	case job.CostEstimate == nil && e == nil:
		return
	case job.CostEstimate == nil:
		row("cost estimate", "none: the model has no price")
	case e == nil:
		row("cost estimate", fmt.Sprintf("%.6f USD", *job.CostEstimate))
		return
	default:
		row("cost estimate", fmt.Sprintf("%.6f USD (%.6f to %.6f)", *job.CostEstimate, e.Low, e.High))
	}
	row("tokens in", terminal.FormatCount(e.InputTokens))
	row("tokens out", terminal.FormatCount(e.OutputTokens)+" (estimated)")
	if e.Seconds != nil && e.SecondsLow != nil && e.SecondsHigh != nil {
		row("time estimate", formatRange(*e.Seconds, *e.SecondsLow, *e.SecondsHigh)+" if it starts now")
	}
	how := "from the input alone; no row was run"
	if e.Method == rowmill.EstimateSampled {
		how = fmt.Sprintf("from the answers to a sample of %s rows (%s tokens in)", terminal.FormatCount(e.SampleRows), terminal.FormatCount(e.SampleInputTokens))
	}
	row("method", how)
}

// formatRange formats an estimated time in seconds, with its bounds.
func formatRange(likely, low, high float64) string {
	format := func(seconds float64) string {
		return terminal.FormatDuration(time.Duration(seconds * float64(time.Second)))
	}
	return fmt.Sprintf("%s (%s to %s)", format(likely), format(low), format(high))
}

// describeForecast returns a text for people about the forecast of a job with a deadline.
func describeForecast(f *client.Forecast) string {
	verdict := "after the deadline"
	if f.Met {
		verdict = "within the deadline"
	}
	return fmt.Sprintf("ends at %s, %s, after %s", terminal.FormatTime(&f.FinishesAt), verdict, formatRange(f.Seconds, f.SecondsLow, f.SecondsHigh))
}

// printAnswer prints the forecast, if there is one, and the warnings of a submission.
func (c *jobCommands) printAnswer(forecast *client.Forecast, warnings []string) {
	if forecast != nil {
		c.Term.Say("forecast: %s", describeForecast(forecast))
	}
	c.printWarnings(warnings)
}

// checkEstimateFlags returns an error if a flag is given that has no effect on an estimate.
func (s *submitFlags) checkEstimateFlags() error {
	var vain []string
	s.save.flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			vain = append(vain, "--"+f.Name)
		}
	})
	if len(vain) > 0 {
		return exit.WithCode(exit.Usage, errors.New("--estimate writes no results; leave out "+strings.Join(vain, ", ")))
	}
	return nil
}
