package order_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/rowmill/rowmill/actors/order"
	"github.com/rowmill/rowmill/engine/sim/batching"
)

type row = order.Row[int]

func rows(n int, text func(i int) string) []row {
	rs := make([]row, n)
	for i := range rs {
		rs[i] = row{Value: i, Text: text(i), Position: int64(i), Avoid: order.None}
	}
	return rs
}

// pool returns a pool for servers that cache this many bytes.
func pool(lengths *order.LengthEstimator, total, cache int64) *order.Pool[int] {
	p := order.NewPool[int](lengths, total)
	p.SetCacheBytes(cache)
	return p
}

// In any sequence of operations, each row comes out exactly once. A server that takes every
// row gets as many as it wants: no row waits while the server has room.
func TestPoolLosesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var lengths order.LengthEstimator
		const total = 4000
		p := pool(&lengths, total, 2048)
		next := 0
		out := make(map[int]bool)
		check := func(rs []row) {
			for _, r := range rs {
				if out[r.Value] {
					t.Fatalf("row %d came out twice", r.Value)
				}
				out[r.Value] = true
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 6).Draw(t, "step") {
			case 0, 1:
				n := rapid.IntRange(0, 200).Draw(t, "n")
				shared := rapid.IntRange(1, 40).Draw(t, "prefixes")
				rs := rows(n, func(i int) string {
					return strings.Repeat(fmt.Sprint(i%shared), 600) + fmt.Sprint(i)
				})
				for i := range rs {
					rs[i].Value, rs[i].Position, rs[i].Batch = next, int64(next%total), next/500
					next++
				}
				p.Add(rs)
			case 2:
				if batch, ok := p.Oldest(); ok {
					p.Expedite(batch)
				}
			case 3:
				got := p.Take(0, 3, true)
				if len(got) > 0 { // they come back, and go to another port
					for i := range got {
						got[i].Avoid = 0
					}
					p.AddToFront(got...)
				}
			case 4:
				p.Leave(order.ServerIndex(rapid.IntRange(0, 2).Draw(t, "port")))
			default:
				port := order.ServerIndex(rapid.IntRange(0, 2).Draw(t, "port"))
				wanted, alone, before := rapid.IntRange(0, 60).Draw(t, "take"), rapid.Bool().Draw(t, "alone"), p.Len()
				got := p.Take(port, wanted, alone)
				check(got)
				if alone && len(got) != min(wanted, before) {
					t.Fatalf("%d of %d rows came out, want %d", len(got), before, wanted)
				}
				for _, r := range got {
					if r.Avoid == port && !alone {
						t.Fatalf("row %d went to the port it avoids", r.Value)
					}
					lengths.Learn(len(r.Text), r.Position, total, 10, int64(r.Value%900))
				}
			}
			if p.Len() != next-len(out) {
				t.Fatalf("%d rows left, want %d", p.Len(), next-len(out))
			}
		}
		check(p.Take(1, next+1, true))
		if len(out) != next || p.Len() != 0 {
			t.Fatalf("%d rows in, %d out, %d left", next, len(out), p.Len())
		}
	})
}

// Once the lengths of answers depend visibly on the size or position of rows, the
// longest rows go first.
func TestPoolLearnsLengths(t *testing.T) {
	t.Parallel()
	const total = 4096
	for name, tokens := range map[string]func(i, bytes int) int64{
		"by size":  func(_, bytes int) int64 { return int64(bytes) },
		"by place": func(i, _ int) int64 { return int64(i) },
		"backward": func(i, _ int) int64 { return int64(total - i) },
	} {
		var lengths order.LengthEstimator
		p := order.NewPool[int](&lengths, total)
		random := rand.New(rand.NewPCG(1, 2))
		p.Add(rows(total, func(int) string { return strings.Repeat("x", 20+random.IntN(2000)) }))
		first, last := 0.0, 0.0
		for p.Len() > 0 {
			for _, r := range p.Take(0, 8, true) {
				n := tokens(r.Value, len(r.Text))
				lengths.Learn(len(r.Text), r.Position, total, int64(len(r.Text))/4, n)
				switch { // the first quarter is for learning
				case p.Len() < total/4:
					last += float64(n)
				case p.Len() < total*3/4 && p.Len() >= total/2:
					first += float64(n)
				}
			}
		}
		if first < 1.5*last {
			t.Errorf("%s: the second quarter took %.0f tokens and the last %.0f, want the long rows first", name, first, last)
		}
	}
}

// prefixed returns row i of a prefix of 2 KB.
func prefixed(of, i int) string {
	return fmt.Sprintf("%04d", of) + strings.Repeat("lorem ipsum ", 200) + fmt.Sprint(i)
}

// A spread has the ports that rows of each prefix went to.
type spread map[int]map[order.ServerIndex]bool

// take takes the next row in turn i, for one of four ports.
func (s spread) take(p *order.Pool[int], i, prefixes int) (of int) {
	port := order.ServerIndex(i % 4)
	of = p.Take(port, 1, true)[0].Value % prefixes
	if s[of] == nil {
		s[of] = make(map[order.ServerIndex]bool)
	}
	s[of][port] = true
	return of
}

// split returns how many ports had rows of a prefix besides its first port.
func (s spread) split() (n int) {
	for _, ports := range s {
		n += len(ports) - 1
	}
	return n
}

// Rows with the same prefix go to the same port and soon after one another, in whatever
// order they came.
func TestPoolKeepsPrefixesTogether(t *testing.T) {
	t.Parallel()
	const prefixes, each = 400, 8
	var lengths order.LengthEstimator
	p := pool(&lengths, prefixes*each, 64<<10)
	all := rows(prefixes*each, func(i int) string { return prefixed(i%prefixes, i) })
	rand.New(rand.NewPCG(3, 4)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	p.Add(all)
	first, last := make(map[int]int), make(map[int]int)
	ports := spread{}
	for i := 0; p.Len() > 0; i++ {
		of := ports.take(p, i, prefixes)
		if _, known := first[of]; !known {
			first[of] = i
		}
		last[of] = i
	}
	apart := 0
	for of := range ports {
		apart += last[of] - first[of]
	}
	if mean := apart / prefixes; mean > 4*8*each { // 4 ports, each with a rotation of 8 groups
		t.Errorf("the first and the last row of a prefix are %d rows apart on average", mean)
	}
	if split := ports.split(); split > 16 { // at the end ports share prefixes
		t.Errorf("%d prefixes went to more than one port", split)
	}
}

// dealt marks rows as dealt by prefix.
func dealt(rows []order.Row[int]) []order.Row[int] {
	for i := range rows {
		rows[i].Share = 1
	}
	return rows
}

// In a job with rows dealt by prefix, later rows of a prefix go to the port that has
// computed the prefix, even if all its earlier rows have left.
func TestPoolKeepsPrefixesTogetherWhileTheyAreRead(t *testing.T) {
	t.Parallel()
	const prefixes, each, atOnce = 400, 8, 2 * 400
	var lengths order.LengthEstimator
	p := pool(&lengths, prefixes*each, 64<<10)
	all := dealt(rows(prefixes*each, func(i int) string { return prefixed(i%prefixes, i) }))
	ports := spread{}
	for turn := 0; len(all) > 0; turn++ {
		p.Add(all[:atOnce])
		all = all[atOnce:]
		for i := turn; p.Len() > 0; i++ { // another port is first each time
			ports.take(p, i, prefixes)
		}
	}
	if split := ports.split(); split > 4*16 { // at the end of each turn ports share prefixes
		t.Errorf("%d prefixes went to more than one port", split)
	}
}

// A port that helps another takes whole prefixes while there are several.
func TestPoolHelpsWithWholePrefixes(t *testing.T) {
	t.Parallel()
	const prefixes, each = 8, 20 // as many as one rotation holds
	var lengths order.LengthEstimator
	p := pool(&lengths, 10_000, 8<<10)
	p.Add(dealt(rows(4096, func(i int) string { return prefixed(i%512, i) }))) // the pool learns from these rows how much is shared
	p.Take(0, 4096, true)
	p.Add(dealt(rows(prefixes*each, func(i int) string { return prefixed(1000+i%prefixes, i) })))
	p.Take(0, prefixes, true)
	helped := make(map[string]int)
	for _, r := range p.Take(1, prefixes*each/2, true) {
		helped[r.Text[:4]]++
	}
	if len(helped) > prefixes/2+1 {
		t.Errorf("half of the rows are of %d prefixes of %d: %v", len(helped), prefixes, helped)
	}
}

// grouped returns rows with the same prefix one after another: each rows of each prefix.
func grouped(prefixes, each int) []row {
	return rows(prefixes*each, func(i int) string { return prefixed(i/each, i) })
}

// A simulated GPU, whose cache has room for all prefixes, computes each prefix about once if
// rows come grouped by prefix.
func TestPoolComputesEachPrefixOnce(t *testing.T) {
	t.Parallel()
	const (
		prefixes, each = 100, 20
		tokens, own    = 500, 40 // of a prefix, and of the rest of a prompt
		mostOfBest     = 1.05    // in the order of the input the ratio is 1.80
	)
	profile, err := batching.FindProfile("llama-3.1-8b/h100")
	if err != nil {
		t.Fatal(err)
	}
	var lengths order.LengthEstimator
	p := pool(&lengths, prefixes*each, int64(profile.KVBlocks()*batching.BlockTokens*4))
	p.Add(grouped(prefixes, each))
	result, err := batching.Simulate(batching.Config{Profile: profile, NoJitter: true}, 1, func(int) *batching.Request {
		next := p.Take(0, 1, true)
		if len(next) == 0 {
			return nil
		}
		r := &batching.Request{PromptTokens: tokens + own, OutputTokens: 20 + next[0].Value*37%80}
		hash := uint64(next[0].Value/each + 1)
		for range tokens / batching.BlockTokens {
			hash = batching.ChainHash(hash, nil)
			r.Prompt = append(r.Prompt, hash)
		}
		return r
	}, batching.DefaultMaxSeqs)
	if err != nil {
		t.Fatal(err)
	}
	const cached = tokens / batching.BlockTokens * batching.BlockTokens
	best := prefixes*each*(tokens+own) - prefixes*(each-1)*cached
	if ratio := float64(result.Computed) / float64(best); ratio > mostOfBest {
		t.Errorf("the GPU computed %.3f of the necessary prompt tokens, at most %.2f", ratio, mostOfBest)
	}
}

// If there are few prefixes, they all fit into the cache, so only lengths decide the
// order.
func TestPoolLeavesCachedPrefixesAlone(t *testing.T) {
	t.Parallel()
	var lengths order.LengthEstimator
	p := pool(&lengths, 1000, 1<<20)
	p.Add(rows(1000, func(i int) string { return strings.Repeat(fmt.Sprint(i%5), 1000+i) }))
	previous := 1 << 30
	for _, r := range p.Take(0, 1000, true) {
		if n := len(r.Text); n > previous*3/2 {
			t.Fatalf("a row of %d bytes after one of %d", n, previous)
		} else {
			previous = n
		}
	}
}

func TestPoolSpreadsOverAnUnknownInput(t *testing.T) {
	t.Parallel()
	var lengths order.LengthEstimator
	p := order.NewPool[int](&lengths, 6400)
	p.Add(rows(6400, func(int) string { return "the same size" }))
	seen := make(map[int]bool)
	for _, r := range p.Take(0, 3200, true) {
		seen[r.Value/1600] = true
	}
	if len(seen) != 4 {
		t.Errorf("half of the rows came from %d quarters of the input, want all 4", len(seen))
	}
}

// With KeepInputOrder, all rows leave in the order of arrival, except rows put in front.
func TestPoolInOrder(t *testing.T) {
	t.Parallel()
	var lengths order.LengthEstimator
	p := order.NewPool[int](&lengths, 1000)
	p.KeepInputOrder()
	all := rows(1000, func(i int) string { return strings.Repeat("the same beginning ", 1+i%50) })
	p.Add(all[:600])
	lengths.Learn(20, 999, 1000, 5, 500) // the end of the input has long answers
	p.Add(all[600:])
	p.AddToFront(rows(1, func(int) string { return "" })...)
	next := -1
	for p.Len() > 0 {
		for _, r := range p.Take(0, 7, true) {
			if r.Value != max(next, 0) {
				t.Fatalf("row %d, want %d", r.Value, max(next, 0))
			}
			next++
		}
	}
	if next != 1000 {
		t.Errorf("%d rows came out", next)
	}
}

// With KeepInputOrder, rows without a share also leave in the order of arrival after the pool has
// chosen another length of prefix.
func TestPoolInOrderAfterANewLength(t *testing.T) {
	t.Parallel()
	var lengths order.LengthEstimator
	p := pool(&lengths, 10_000, 8<<10)
	p.KeepInputOrder()
	p.Add(rows(600, func(i int) string { return prefixed(i%20, i) }))
	p.Add(dealt(rows(4096, func(i int) string { return prefixed(i%512, i) })))
	next := 0
	for p.Len() > 0 {
		for _, r := range p.Take(0, 7, true) {
			if r.Share == 0 && r.Value != next {
				t.Fatalf("row %d, want %d", r.Value, next)
			} else if r.Share == 0 {
				next++
			}
		}
	}
	if next != 600 {
		t.Errorf("%d rows without a share came out, want 600", next)
	}
}

// A pool's memory does not grow with the length of the input.
func TestPoolFreesMemory(t *testing.T) {
	var lengths order.LengthEstimator
	const total, batch = 2_000_000, 1000
	p := order.NewPool[int](&lengths, total)
	var before, after runtime.MemStats
	for at := 0; at < total; at += batch {
		next := rows(batch, func(int) string { return "a text" })
		for i := range next {
			next[i].Position = int64(at + i)
		}
		p.Add(next)
		if at > 0 { // one batch always remains
			p.Take(0, batch, true)
		}
		if at == total/10 {
			runtime.GC()
			runtime.ReadMemStats(&before)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 4<<20 {
		t.Errorf("%d bytes more after %d rows than after a tenth of them", grown, total)
	}
	runtime.KeepAlive(p)
}

// BenchmarkPlan measures the cost of order per row: add, take and learn.
func BenchmarkPlan(b *testing.B) {
	for _, shared := range []int{0, 5, 5000} {
		b.Run(fmt.Sprint("prefixes=", shared), func(b *testing.B) {
			random := rand.New(rand.NewPCG(1, 1))
			texts := make([]string, 16384)
			for i := range texts {
				body := make([]byte, 300)
				for j := range body {
					body[j] = byte('a' + random.IntN(26))
				}
				texts[i] = string(body)
				if shared > 0 {
					texts[i] = strings.Repeat(fmt.Sprintf("%06d", random.IntN(shared)), 1400) + texts[i]
				}
			}
			b.ReportAllocs()
			b.ResetTimer()
			for done := 0; done < b.N; {
				var lengths order.LengthEstimator
				p := pool(&lengths, int64(len(texts)), 1<<20)
				for at := 0; at < len(texts); at += 1024 {
					p.Add(rows(1024, func(i int) string { return texts[at+i] }))
				}
				for i := 0; p.Len() > 0; i++ {
					for _, r := range p.Take(order.ServerIndex(i%4), 8, true) {
						lengths.Learn(len(r.Text), r.Position, int64(len(texts)), 500, int64(random.IntN(1000)))
						done++
					}
				}
			}
		})
	}
}

// Expedited rows with the same prefix stay together too.
func TestPoolExpeditesWholePrefixes(t *testing.T) {
	t.Parallel()
	const prefixes, each = 40, 8
	var lengths order.LengthEstimator
	p := pool(&lengths, prefixes*each, 64<<10)
	p.Add(rows(prefixes*each, func(i int) string { return prefixed(i%prefixes, i) }))
	p.Expedite(0)
	last, turns := -1, 0
	for p.Len() > 0 {
		for _, r := range p.Take(0, 1, true) {
			if of := r.Value % prefixes; of != last {
				last, turns = of, turns+1
			}
		}
	}
	if turns != prefixes {
		t.Errorf("%d prefixes come in %d turns", prefixes, turns)
	}
}
