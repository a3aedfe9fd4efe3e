package commit

import "github.com/rowmill/rowmill/store"

// A Piece is the complete parts of the shards from From on and before To, put
// together as one part.
type Piece struct{ From, To int }

// PieceSizes say when complete parts are put together while a job runs: so that a
// bucket that copies only long ranges by itself finds some, and little is left to be
// done once the last row is. The zero value is for a bucket that needs none.
type PieceSizes struct {
	// Least is what a piece must have, in bytes; fewer are left as they are.
	Least int64
	// Most is what a piece is cut at, in bytes. As the end comes near it becomes less,
	// down to an eighth: what is being put together when the last row comes is waited
	// for.
	Most int64
}

// nearEnd is the share of what is left that a piece has at most, down to the least
// share of the most.
const nearEnd = 8

// pieceShards bounds the shards of a piece: each is open while it is made.
const pieceShards = maxOpen

// pieces decide which shards are put together.
type pieces struct {
	sizes PieceSizes
	parts []pieceShard
	bytes int64         // of all complete parts
	rows  int64         // of those
	left  int64         // rows of the job that are in no piece
	made  map[int]piece // by their first shard
	begun int           // of them, those that are not there yet
	ended bool
}

type pieceShard struct {
	size, rows int64 // of the complete part; 0 where there is none
	taken      bool  // in a piece
}

type piece struct {
	Piece
	part store.Part
}

func newPieces(sizes PieceSizes, shards int, rows int64) pieces {
	return pieces{sizes: sizes, parts: make([]pieceShard, shards), left: rows, made: make(map[int]piece)}
}

// complete notes the complete part of a shard, and returns the piece that it makes
// up, if any.
func (p *pieces) complete(part store.Part) (cut []Piece) {
	s := &p.parts[part.Shard]
	if p.sizes.Most == 0 || s.size > 0 {
		return nil
	}
	s.size, s.rows = part.Size, part.Rows
	p.bytes, p.rows = p.bytes+part.Size, p.rows+part.Rows
	if run, size := p.run(part.Shard); size >= p.target() || run.To-run.From >= pieceShards {
		cut = p.take(cut, run, size)
	}
	return cut
}

// target is the size of the next piece.
func (p *pieces) target() int64 {
	left := float64(p.left) * float64(p.bytes) / float64(p.rows)
	return max(min(int64(left)/nearEnd, p.sizes.Most), p.sizes.Most/nearEnd, p.sizes.Least)
}

// run is what could be put together around a shard.
func (p *pieces) run(n int) (run Piece, size int64) {
	free := func(i int) bool { return p.parts[i].size > 0 && !p.parts[i].taken }
	run = Piece{n, n}
	for run.From > 0 && free(run.From-1) {
		run.From--
	}
	for run.To < len(p.parts) && free(run.To) {
		run.To++
	}
	for _, s := range p.parts[run.From:run.To] {
		size += s.size
	}
	return run, size
}

// rest returns the pieces that the end leaves, once.
func (p *pieces) rest() (cut []Piece) {
	if p.ended || p.sizes.Most == 0 {
		return nil
	}
	p.ended = true
	for n := 0; n < len(p.parts); n++ {
		if run, size := p.run(n); run.To > n {
			if size >= p.sizes.Least {
				cut = p.take(cut, run, size)
			}
			n = run.To
		}
	}
	return cut
}

// take makes pieces of a run, each about as large as the next should be.
func (p *pieces) take(cut []Piece, run Piece, size int64) []Piece {
	pieces := max(1, size/p.target())
	for from := run.From; from < run.To; {
		one, has := Piece{from, from}, int64(0)
		for one.To < run.To && one.To-one.From < pieceShards && (has < size/pieces || one.To == from) {
			has += p.parts[one.To].size
			p.left -= p.parts[one.To].rows
			p.parts[one.To].taken = true
			one.To++
		}
		p.begun++
		cut, from = append(cut, one), one.To
	}
	return cut
}

// put notes that a piece is there.
func (p *pieces) put(at Piece, part store.Part) {
	p.made[at.From] = piece{at, part}
	p.begun--
}

// of are the parts of all shards in order, those in pieces as these.
func (p *pieces) of(parts func(shard int) []store.Part) (all []store.Part) {
	for n := 0; n < len(p.parts); {
		if made, ok := p.made[n]; ok {
			all, n = append(all, made.part), made.To
			continue
		}
		all, n = append(all, parts(n)...), n+1
	}
	return all
}
