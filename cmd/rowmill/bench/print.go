package bench

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/bench/verdict"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

// A benchReport is the JSON document that `rowmill bench -o json` prints.
type benchReport struct {
	Model     string   `json:"model"`
	Simulated bool     `json:"simulated"`
	Servers   int      `json:"servers"`
	Nodes     int      `json:"nodes"`
	Driven    []string `json:"driven_directly"` // servers that got direct requests, as node/engine
	Sent      int      `json:"rows_sent_directly"`
	verdict.Verdict
	Steps   []verdict.LoadStep       `json:"steps"`
	Jobs    []verdict.JobMeasurement `json:"jobs"`
	Storage []nodeStorageTimes       `json:"storage"`
}

// nodeStorageTimes holds the storage times of a node, in seconds.
type nodeStorageTimes struct {
	Node   string         `json:"node"`
	Commit verdict.Spread `json:"commit_seconds"`
	Sync   verdict.Spread `json:"sync_seconds"`
	Put    verdict.Spread `json:"put_seconds"`
	Get    verdict.Spread `json:"get_seconds"`
	Bytes  int            `json:"object_bytes"`
}

func (b *benchRun) printReport(model client.Model) error {
	r := benchReport{
		Model: model.ID, Simulated: b.measured.Simulated, Servers: b.servers, Nodes: b.measured.Nodes,
		Driven: append([]string{}, b.reached...), Sent: b.sent, Verdict: verdict.Explain(b.measured),
		Steps: append([]verdict.LoadStep{}, b.measured.Steps...), Jobs: b.measured.Jobs,
	}
	for _, s := range b.measured.Storage {
		r.Storage = append(r.Storage, nodeStorageTimes{s.Node, verdict.NewSpread(s.Commits), verdict.NewSpread(s.Syncs), verdict.NewSpread(s.Puts), verdict.NewSpread(s.Gets), s.ObjectBytes})
	}
	return b.Print(r, r.writeText)
}

// formatFigure formats a rate, a ratio or a time with three digits.
func formatFigure(f float64) string {
	if f >= 1000 {
		return terminal.FormatCount(int64(f))
	}
	return strconv.FormatFloat(f, 'g', 3, 64)
}

func formatMillis(seconds float64) string { return formatFigure(1000 * seconds) }

// writeText writes a report for people.
func (r benchReport) writeText(w io.Writer) error {
	made := ""
	if r.Simulated {
		made = ", SIMULATED"
	}
	if _, err := fmt.Fprintf(w, "%s; servers: %d, nodes that have them: %d%s. Medians (least–greatest, n repetitions).\n\n", terminal.SanitizeLine(r.Model), r.Servers, r.Nodes, made); err != nil {
		return err
	}
	err := terminal.WriteTable(w, func(row terminal.RowWriter) {
		row("servers, driven directly", r.Engines.Format(formatFigure), "rows/s")
		row("Rowmill, the same rows", r.Rowmill.Format(formatFigure), "rows/s")
		row("Rowmill ÷ servers", r.Ratio.Format(formatFigure), "")
		for _, s := range r.Storage {
			row(s.Node+": commit of a record", s.Commit.Format(formatMillis), "ms")
			if s.Sync.N > 0 {
				row(s.Node+": flush of 4 KiB to its disk", s.Sync.Format(formatMillis), "ms")
			}
			object := fmt.Sprintf(" an object of %d KiB", s.Bytes>>10)
			row(s.Node+": put"+object, s.Put.Format(formatMillis), "ms")
			row(s.Node+": get"+object, s.Get.Format(formatMillis), "ms")
		}
	})
	if err != nil {
		return err
	}
	if _, err := io.WriteString(w, "\n"); err != nil {
		return err
	}
	err = terminal.WriteTable(w, func(row terminal.RowWriter) {
		row("PART", "CAN HANDLE, ROWS/S", "NODES LIKE THESE", "BASIS")
		for _, p := range r.Parts {
			nodes := ""
			if p.Nodes > 0 {
				nodes = terminal.FormatCount(int64(p.Nodes))
			}
			row(terminal.FillEmptyCells(p.Name, terminal.FormatCount(int64(p.Rows)), nodes, p.Basis)...)
		}
	})
	if err != nil {
		return err
	}
	var lines strings.Builder
	for _, f := range r.Findings {
		lines.WriteString("\n" + terminal.FormatFinding(f.Level, f.Text, f.Remedy))
	}
	_, err = io.WriteString(w, lines.String()+"\n")
	return err
}
