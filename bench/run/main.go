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
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// benchmarks holds the benchmarks by name.
var benchmarks = map[string]func(*bench, context.Context) error{
	"b1": (*bench).rowPath, "b2": (*bench).saturation, "b2/real": (*bench).realSaturation, "b5": (*bench).equalRows,
	"b6": (*bench).scaleOut, "b6/cpu": (*bench).scaleCPU, "b7": (*bench).growth, "b9": (*bench).crashes,
	"b11": (*bench).controlPlane, "b12": (*bench).fairness, "console": (*bench).console, "final/embeddings": (*bench).final,
	"first": (*bench).first, "gpu": (*bench).realGPU, "ingest": (*bench).ingest, "ops": (*bench).operations,
	"peers": (*bench).alternatives, "writes": (*bench).writes,
}

// options holds the flags. Each names its benchmarks.
type options struct {
	dir, rowmill, built, serverCPUs string

	rounds     int
	rows, most int64
	gpu        string
	length     time.Duration
	nodes      int
	answer     time.Duration
	logprobs   bool
	beside     string
	traced     float64
	bytes      int
	tokens     int
	delay      time.Duration
	slots      int
	jobs       int
	greedy     int64
	stored     int
	args       []string // after the name of the benchmark
}

func (o *options) register() {
	flag.StringVar(&o.dir, "dir", "bin/bench", "directory for data sets, results and logs")
	flag.StringVar(&o.rowmill, "rowmill", "bin/rowmill", "binary to measure")
	flag.StringVar(&o.built, "built", "", "directory with built contenders, for a machine without Go; empty: build them")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds of each measurement")
	flag.Int64Var(&o.rows, "rows", 200_000, "rows of B1, of B2 on a real server, of ingest, of writes and of final; different rows of B5")
	flag.StringVar(&o.gpu, "gpu", "", "measure only those servers of B2 whose name contains this")
	flag.DurationVar(&o.length, "length", 3*time.Minute, "approximate time of a job of B2, B6 or B9 on simulated servers")
	flag.IntVar(&o.nodes, "nodes", 16, "largest number of nodes of B6 and B12")
	flag.DurationVar(&o.answer, "answer", slowAnswer, "time per row of the servers of B6 and B12, which run 16 rows at once")
	flag.Int64Var(&o.most, "most", 10_000_000, "rows of the largest job of B7 and of first")
	flag.BoolVar(&o.logprobs, "logprobs", true, "whether B1 asks for log probabilities")
	flag.StringVar(&o.beside, "beside", "", "another binary to measure in B1, such as an earlier one")
	flag.Float64Var(&o.traced, "traced", 0, "share of rows with traced requests in an additional contender of B1; 0: no such contender")
	flag.IntVar(&o.bytes, "bytes", 1024, "size of each row of B1")
	flag.IntVar(&o.tokens, "tokens", 110, "tokens per answer in B1, about 4.7 bytes each")
	flag.DurationVar(&o.delay, "delay", 0, "time per answer of the server in B1, B5 and final/embeddings")
	flag.IntVar(&o.slots, "slots", 0, "concurrent answers of that server; 0: no limit")
	flag.IntVar(&o.jobs, "jobs", 10_000, "jobs that another account has submitted in B12")
	flag.Int64Var(&o.greedy, "greedy", 100, "rows of each of these jobs; from 100,000 on the input is a Parquet file by URL")
	flag.IntVar(&o.stored, "stored", 100_000, "stored jobs before B11 starts")
	flag.StringVar(&o.serverCPUs, "server-cpus", "", "processors for the server of b2/real, in the form of taskset -c; run everything else on other processors with taskset. Empty: all processors for all")
}

func main() {
	var o options
	o.register()
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "usage: run [flags] %s, from the repository's root\n", strings.Join(slices.Sorted(maps.Keys(benchmarks)), "|"))
		flag.PrintDefaults()
	}
	flag.Parse()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	name := flag.Arg(0)
	measure := benchmarks[name]
	if measure == nil || flag.NArg() != 1 && name != "gpu" && name != "b2/real" {
		flag.Usage()
		os.Exit(2)
	}
	o.args = flag.Args()[1:]
	if err := run(log, o, measure); errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	} else if err != nil {
		log.Error("the benchmark failed", "err", err)
		os.Exit(1)
	}
}

// run runs a benchmark until its end or a signal.
func run(log *slog.Logger, o options, measure func(*bench, context.Context) error) error {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	b, err := newBench(log, o)
	if err != nil {
		return err
	}
	defer b.close()
	return measure(b, ctx)
}
