package hostile

import (
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
)

// An AttackProxy is a proxy before Honest, a correct inference server. It answers a share of
// the chat completions itself, with bad answers of the kinds that CertainKinds returns.
// POST /hostile?share=0.2 sets the share, which is 0 at the start.
type AttackProxy struct {
	Honest http.Handler

	share atomic.Uint64 // bits of a float64
	asked atomic.Uint64
}

func (f *AttackProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/hostile":
		share, err := strconv.ParseFloat(r.FormValue("share"), 64)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		f.share.Store(math.Float64bits(share))
	case Chat:
		d := newRand(f.asked.Add(1))
		if d.Float64() < math.Float64frombits(f.share.Load()) {
			f.answerBadly(w, r, d.Uint64())
			return
		}
		f.Honest.ServeHTTP(w, r)
	default:
		f.Honest.ServeHTTP(w, r)
	}
}

// answerBadly answers a request with a random kind of bad answer. Honest gets the request
// only if the bad answer contains the honest answer: a request with a broken answer
// must not count as computed.
func (f *AttackProxy) answerBadly(w http.ResponseWriter, r *http.Request, seed uint64) {
	kind := Draw(CertainKinds(Chat), seed)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	made := Config{}.honestRequest(Chat, body)
	made.Seed = seed
	if kind.Outcome == Keeps {
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		honest := httptest.NewRecorder()
		f.Honest.ServeHTTP(honest, r)
		made.Good = honest.Body.Bytes()
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	kind.Answer(conn, made)
}
