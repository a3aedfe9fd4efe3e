// Command tokens compares how fast tokenizers count tokens in rows of about 400 bytes
// with o200k_base in one thread: ours, tiktoken-go, tiktoken-go/tokenizer and, if a
// Python has it, the original tiktoken. It has its own module, so that the other
// tokenizers do not become dependencies of Rowmill.
//
//	go run . -rounds 5
//
// Contenders take turns within each round. A figure is the median of the rounds, in
// megabytes per second of processor time, garbage collection included.
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/pkoukk/tiktoken-go"
	loader "github.com/pkoukk/tiktoken-go-loader"
	"github.com/pkoukk/tiktoken-go-loader/assets"
	"github.com/tiktoken-go/tokenizer"

	"github.com/rowmill/rowmill/tokenize"
)

// contender counts the tokens of all rows of a corpus and returns the
// processor time in seconds.
type contender struct {
	name string
	run  func(corpus string) (seconds float64, tokens int, err error)
}

func main() {
	rounds := flag.Int("rounds", 5, "rounds of each contender")
	root := flag.String("root", "../..", "folder of the repository")
	flag.Parse()
	if err := run(context.Background(), *rounds, *root); err != nil {
		fmt.Fprintln(os.Stderr, "tokens:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, rounds int, root string) error {
	runtime.GOMAXPROCS(1)
	corpora, err := readCorpora(ctx, root)
	if err != nil {
		return err
	}
	contenders, closeAll, err := contenders(ctx, corpora)
	if err != nil {
		return err
	}
	defer closeAll()

	fmt.Printf("| o200k_base, MB/s |")
	for _, c := range contenders {
		fmt.Printf(" %s |", c.name)
	}
	fmt.Printf(" ours ÷ best other |\n|%s\n", strings.Repeat("---|", len(contenders)+2))
	for _, corpus := range corpora {
		speeds := make([][]float64, len(contenders))
		tokens := 0
		for range rounds {
			for i, c := range contenders {
				seconds, n, err := c.run(corpus.name)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", c.name, corpus.name, err)
				}
				speeds[i] = append(speeds[i], float64(corpus.size)/1e6/seconds)
				if tokens = cmp.Or(tokens, n); n != tokens {
					fmt.Fprintf(os.Stderr, "%s counts %d tokens in %s, not %d\n", c.name, n, corpus.name, tokens)
				}
			}
		}
		fmt.Printf("| %s |", corpus.name)
		best, ours := 0.0, 0.0
		for i := range contenders {
			slices.Sort(speeds[i])
			median := speeds[i][rounds/2]
			fmt.Printf(" %.1f (%.1f–%.1f) |", median, speeds[i][0], speeds[i][rounds-1])
			if i == 0 {
				ours = median
			} else {
				best = max(best, median)
			}
		}
		fmt.Printf(" %.1f |\n", ours/best)
	}
	return nil
}

func contenders(ctx context.Context, corpora []corpus) (all []contender, stop func(), err error) {
	ours, err := tokenize.Load("o200k_base")
	if err != nil {
		return nil, nil, err
	}
	tiktoken.SetBpeLoader(loader.NewOfflineLoader())
	port, err := tiktoken.GetEncoding("o200k_base")
	if err != nil {
		return nil, nil, err
	}
	other, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		return nil, nil, err
	}
	all = []contender{
		local("Count", corpora, ours.Count),
		local("tiktoken-go", corpora, func(text string) int { return len(port.EncodeOrdinary(text)) }),
		local("tiktoken-go/tokenizer", corpora, func(text string) int {
			ids, _, _ := other.Encode(text)
			return len(ids)
		}),
	}
	original, stop, err := python(ctx, corpora)
	if err != nil {
		fmt.Fprintln(os.Stderr, "without the original tiktoken:", err)
		return all, func() {}, nil
	}
	return append(all, original), stop, nil
}

// local is a contender in this process.
func local(name string, corpora []corpus, count func(text string) int) contender {
	rows := make(map[string][]string)
	for _, c := range corpora {
		rows[c.name] = c.rows
	}
	return contender{name, func(corpus string) (float64, int, error) {
		runtime.GC()
		tokens, begun := 0, processorTime()
		for _, row := range rows[corpus] {
			tokens += count(row)
		}
		return processorTime() - begun, tokens, nil
	}}
}

func processorTime() float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err) // cannot happen: the argument is constant
	}
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}

// python starts the original tiktoken in a Python that has it; the project's own tools
// come first.
func python(ctx context.Context, corpora []corpus) (contender, func(), error) {
	var none contender
	program := ""
	for _, candidate := range []string{os.Getenv("ROWMILL_PYTHON"), "../../bin/tools/venv/bin/python", "python3"} {
		if candidate != "" && exec.CommandContext(ctx, candidate, "-c", "import tiktoken").Run() == nil {
			program = candidate
			break
		}
	}
	if program == "" {
		return none, nil, fmt.Errorf("no python3 has tiktoken; run .ci/tools python")
	}
	dir, err := os.MkdirTemp("", "tokens")
	if err != nil {
		return none, nil, err
	}
	ranks, err := assets.Assets.ReadFile("o200k_base.tiktoken")
	if err != nil {
		return none, nil, err
	}
	rows := make(map[string][]string)
	for _, c := range corpora {
		rows[c.name] = c.rows
	}
	text, err := json.Marshal(rows)
	if err != nil {
		return none, nil, err
	}
	for name, data := range map[string][]byte{"rows.json": text, "ranks": ranks} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return none, nil, err
		}
	}
	command := exec.CommandContext(ctx, program, "tiktoken_rows.py", filepath.Join(dir, "rows.json"), filepath.Join(dir, "ranks"))
	command.Stderr = os.Stderr
	// Without a cache directory tiktoken reads the given file.
	command.Env = append(os.Environ(), "TIKTOKEN_CACHE_DIR=")
	in, err := command.StdinPipe()
	if err != nil {
		return none, nil, err
	}
	out, err := command.StdoutPipe()
	if err != nil {
		return none, nil, err
	}
	if err := command.Start(); err != nil {
		return none, nil, err
	}
	stop := func() {
		in.Close()
		_ = command.Wait()
		_ = os.RemoveAll(dir)
	}
	lines := bufio.NewReader(out)
	version, err := lines.ReadString('\n')
	if err != nil {
		stop()
		return none, nil, fmt.Errorf("start tiktoken: %w", err)
	}
	return contender{"tiktoken " + strings.TrimSpace(version), func(corpus string) (seconds float64, tokens int, err error) {
		if _, err := io.WriteString(in, corpus+"\n"); err != nil {
			return 0, 0, err
		}
		_, err = fmt.Fscanln(lines, &seconds, &tokens)
		return seconds, tokens, err
	}}, stop, nil
}
