// Command run measures Rowmill against its limits and against what people
// would write instead. Contenders take turns within a round, so that a ratio
// compares neighbours in time, or run at once where the pace is not that of this
// machine; processor time is that of the contender's own process. See
// bench/README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	var (
		dir     = flag.String("dir", "bin/bench", "directory for data sets, results and logs")
		rowmill = flag.String("rowmill", "bin/rowmill", "binary under measurement")
		built   = flag.String("built", "", "directory with the contenders, for a machine without Go; empty: they are built here")
		rounds  = flag.Int("rounds", 5, "rounds of each measurement")
		rows    = flag.Int64("rows", 200_000, "rows of B1, of B2 on a real server, different ones of B5, of ingest, of writes and of final")
		only    = flag.String("gpu", "", "measure only those servers of B2 whose name contains this")
		length  = flag.Duration("length", 3*time.Minute, "about how long one job of B2, B6 or B9 takes on simulated servers")
		nodes   = flag.Int("nodes", 16, "nodes of B6 at most")
		answer  = flag.Duration("answer", slowAnswer, "how long the servers of B6 take for a row; they run 16 at once")
		most    = flag.Int64("most", 10_000_000, "rows of the largest job of B7 and of first")
	)
	logprobs := flag.Bool("logprobs", true, "whether B1 asks for log probabilities")
	limits := flag.Bool("limits", false, "B1 with the scanned limit and the service alone")
	beside := flag.String("beside", "", "a further binary to be measured in B1, such as an earlier one")
	traced := flag.Float64("traced", 0, "share of the rows whose requests are traced in a further contender of B1; 0 for none")
	profiles := flag.String("profiles", "", "directory for profiles of the processor time and allocations of the services in B1; empty: none are made")
	bytes := flag.Int("bytes", 1024, "of each row of B1")
	tokens := flag.Int("tokens", 110, "of each answer in B1, about 4.7 bytes each")
	delay := flag.Duration("delay", 0, "how long the server of B1, B5 and final/embeddings takes for an answer")
	slots := flag.Int("slots", 0, "answers that it makes at once; 0 for no bound")
	jobs := flag.Int("jobs", 10_000, "jobs that another account has submitted in B12")
	greedy := flag.Int64("greedy", 100, "rows of each of them; from 100,000 on it is a Parquet file by URL")
	stored := flag.Int("stored", 100_000, "jobs that are stored before B11 begins")
	cpus := flag.String("server-cpus", "", "processors of the server of b2/real, as taskset -c takes them; run the whole on others with taskset. Empty: all share all")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: run [flags] b1|b2|b2/real|b5|ingest|first|b6|b6/cpu|b7|b9|b11|b12|console|gpu|ops|peers|writes|final|final/embeddings, from the repository's root")
		flag.PrintDefaults()
	}
	flag.Parse()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if flag.NArg() != 1 && flag.Arg(0) != "gpu" && flag.Arg(0) != "b2/real" {
		flag.Usage()
		os.Exit(2)
	}

	size := sizes{
		rows: *rows, most: *most, gpu: *only, length: *length, nodes: *nodes, answer: *answer, jobs: *jobs, greedy: *greedy, stored: *stored,
		rowPath: rowPath{logprobs: *logprobs, limits: *limits, beside: *beside, traced: *traced, profiles: *profiles, bytes: *bytes, tokens: *tokens, delay: *delay, slots: *slots},
	}
	b, err := newBench(log, *dir, *rowmill, *rounds)
	if err == nil {
		b.built, b.serverCPUs = *built, *cpus
		err = run(b, flag.Args(), size)
	}
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	} else if err != nil {
		log.Error("the benchmark failed", "err", err)
		os.Exit(1)
	}
}

// sizes say how much of a benchmark to run; the flags tell which is whose.
type sizes struct {
	rows, most int64
	gpu        string
	length     time.Duration
	nodes      int
	answer     time.Duration
	jobs       int
	greedy     int64
	stored     int
	rowPath    rowPath
}

// run runs the benchmark that the first argument names; gpu and b2/real have further ones.
func run(b *bench, args []string, size sizes) error {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	defer b.close()
	switch args[0] {
	case "b1":
		return b.rowPath(ctx, size.rows, size.rowPath)
	case "b2":
		return b.saturation(ctx, size.gpu, size.length)
	case "b2/real":
		return b.realSaturation(ctx, strings.Join(args[1:], " "), size.rows)
	case "b5":
		return b.equalRows(ctx, size.rows, size.rowPath)
	case "ingest":
		return b.ingest(ctx, size.rows)
	case "first":
		return b.first(ctx, size.most)
	case "b6":
		return b.scaleOut(ctx, size.nodes, size.answer, size.length)
	case "b6/cpu":
		return b.scaleCPU(ctx, size.nodes)
	case "b7":
		return b.growth(ctx, size.most)
	case "b9":
		return b.crashes(ctx, size.length)
	case "b11":
		return b.controlPlane(ctx, size.stored)
	case "b12":
		return b.fairness(ctx, size)
	case "gpu":
		return b.realGPU(ctx, args[1:])
	case "console":
		return b.console(ctx)
	case "peers":
		return b.alternatives(ctx, size.rows)
	case "final":
		return b.final(ctx, size.rows)
	case "final/embeddings":
		return b.finalEmbeddings(ctx, size.rows, size.rowPath)
	case "writes":
		return b.writes(ctx, size.rows)
	case "ops":
		return b.operations(ctx)
	}
	return fmt.Errorf("unknown benchmark %q: b1, b2, b2/real, b5, ingest, first, b6, b6/cpu, b7, b9, b11, b12, console, gpu, ops, peers, writes, final or final/embeddings", args[0])
}
