package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// spread holds one figure of several rounds.
type spread []float64

func (s spread) median() float64 {
	sorted := slices.Sorted(slices.Values(s))
	if len(sorted) == 0 {
		return 0
	}
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// String returns the median with the smallest and the largest value.
func (s spread) String() string { return s.print(short) }

// precise is String with three decimals, for ratios near 1.
func (s spread) precise() string {
	return s.print(func(x float64) string { return fmt.Sprintf("%.3f", x) })
}

func (s spread) print(figure func(float64) string) string {
	if len(s) == 0 {
		return "–"
	}
	return fmt.Sprintf("%s (%s–%s)", figure(s.median()), figure(slices.Min(s)), figure(slices.Max(s)))
}

// short formats a figure with three significant digits.
func short(x float64) string {
	switch {
	case x >= 100:
		return fmt.Sprintf("%.0f", x)
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

// over divides two figures round by round: rounds are neighbours in time, so other load
// on the machine cancels out.
func (s spread) over(base spread) spread {
	ratios := make(spread, 0, len(s))
	for i := range min(len(s), len(base)) {
		ratios = append(ratios, s[i]/base[i])
	}
	return ratios
}

// percentile returns the value that a share p of the durations does not exceed.
func percentile(durations []time.Duration, p float64) time.Duration {
	if len(durations) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(durations))
	return sorted[min(int(p*float64(len(sorted))), len(sorted)-1)]
}

// table is a Markdown table.
type table struct {
	head []string
	rows [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// report prints the table under a title.
func (t *table) report(title string, args ...any) {
	fmt.Printf("\n"+title+"\n\n", args...)
	t.print(os.Stdout)
}

func (t *table) print(w io.Writer) {
	fmt.Fprintf(w, "| %s |\n|%s\n", strings.Join(t.head, " | "), strings.Repeat("---|", len(t.head)))
	for _, row := range t.rows {
		fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
	}
}
