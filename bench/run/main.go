// Command run compares Rowmill with its limits and with typical programs. Contenders
// take turns within a round, so that a ratio compares neighbours in time. Where the
// pace does not depend on this machine, they run at once. Processor time is the time of
// the contender's own process. See bench/README.md.
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
		rowmill = flag.String("rowmill", "bin/rowmill", "binary to measure")
		built   = flag.String("built", "", "directory with built contenders, for a machine without Go; empty: build them")
		rounds  = flag.Int("rounds", 5, "rounds of each measurement")
		rows    = flag.Int64("rows", 200_000, "rows of B1, of B2 on a real server, of ingest, of writes and of final; different rows of B5")
		only    = flag.String("gpu", "", "measure only those servers of B2 whose name contains this")
		length  = flag.Duration("length", 3*time.Minute, "approximate time of a job of B2, B6 or B9 on simulated servers")
		nodes   = flag.Int("nodes", 16, "largest number of nodes of B6")
		answer  = flag.Duration("answer", slowAnswer, "time per row of the servers of B6, which run 16 rows at once")
		most    = flag.Int64("most", 10_000_000, "rows of the largest job of B7 and of first")
	)
	logprobs := flag.Bool("logprobs", true, "whether B1 asks for log probabilities")
	limits := flag.Bool("limits", false, "run B1 with the scanned limit and the service only")
	beside := flag.String("beside", "", "another binary to measure in B1, such as an earlier one")
	traced := flag.Float64("traced", 0, "share of rows with traced requests in an additional contender of B1; 0: no such contender")
	profiles := flag.String("profiles", "", "directory for profiles of processor time and allocations of the services in B1; empty: no profiles")
	bytes := flag.Int("bytes", 1024, "size of each row of B1")
	tokens := flag.Int("tokens", 110, "tokens per answer in B1, about 4.7 bytes each")
	delay := flag.Duration("delay", 0, "time per answer of the server in B1, B5 and final/embeddings")
	slots := flag.Int("slots", 0, "concurrent answers of that server; 0: no limit")
	jobs := flag.Int("jobs", 10_000, "jobs that another account has submitted in B12")
	greedy := flag.Int64("greedy", 100, "rows of each of these jobs; from 100,000 on the input is a Parquet file by URL")
	stored := flag.Int("stored", 100_000, "stored jobs before B11 starts")
	cpus := flag.String("server-cpus", "", "processors for the server of b2/real, in the form of taskset -c; run everything else on other processors with taskset. Empty: all processors for all")
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

// sizes holds the sizes of benchmarks. Each flag names its benchmark.
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

// run runs the benchmark in the first argument; gpu and b2/real take more arguments.
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
