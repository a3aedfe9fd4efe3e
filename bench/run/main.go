// Command run measures Rowmill against its limits and against what people
// would write instead. Contenders take turns within a round, so that a ratio
// compares neighbours in time; processor time is that of the contender's own
// process. See bench/README.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	var (
		dir     = flag.String("dir", "bin/bench", "directory for data sets, results and logs")
		rowmill = flag.String("rowmill", "bin/rowmill", "binary under measurement")
		rounds  = flag.Int("rounds", 5, "rounds of each measurement")
		rows    = flag.Int64("rows", 200_000, "rows of B1 and of ingest")
		most    = flag.Int64("most", 10_000_000, "rows of the largest job of B7")
	)
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: run [flags] b1|ingest|b7|b11, from the repository's root")
		flag.PrintDefaults()
	}
	flag.Parse()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}

	if err := run(log, flag.Arg(0), *dir, *rowmill, *rounds, *rows, *most); err != nil {
		log.Error("benchmark", "err", err)
		os.Exit(1)
	}
}

func run(log *slog.Logger, name, dir, rowmill string, rounds int, rows, most int64) error {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	b, err := newBench(log, dir, rowmill, rounds)
	if err != nil {
		return err
	}
	defer b.close()
	switch name {
	case "b1":
		return b.rowPath(ctx, rows)
	case "ingest":
		return b.ingest(ctx, rows)
	case "b7":
		return b.growth(ctx, most)
	case "b11":
		return b.controlPlane(ctx)
	}
	return fmt.Errorf("unknown benchmark %q: b1, ingest, b7 or b11", name)
}
