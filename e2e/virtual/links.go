package virtual

import (
	"fmt"
	"regexp"
	"slices"
	"time"
)

// connect makes the network follow the schedule.
func (w *world) connect() {
	w.net.reaches = func(from, to *port) bool { return !w.cut(from.node, to.node) }
	w.net.broken = w.anyCut
	w.net.fate = w.fate
	w.net.later = w.later
	w.net.awake = func(p *port, what string) bool {
		for !p.isGone() {
			left := w.halted(p.node)
			if left <= 0 {
				return true
			}
			time.Sleep(left + w.latency(p.node, "wake", what))
		}
		return false
	}
}

// cut reports whether messages from one node to another are lost.
func (w *world) cut(from, to int) bool {
	return w.active(from, "cut", func(f Fault) bool {
		switch {
		case f.Node == from && (f.To == to || f.To < 0):
			return f.How != "in" || f.To < 0
		case f.Node == to && (f.To == from || f.To < 0):
			return f.How != "out"
		}
		return false
	}) != nil
}

// anyCut reports whether a fault cuts the network now.
func (w *world) anyCut() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := Duration(w.now())
	return !w.healed && slices.ContainsFunc(w.Faults, func(f Fault) bool { return f.Kind == "cut" && f.At <= now && now < f.At+f.For })
}

// jobID finds the id of the job in the text of a message.
var jobID = regexp.MustCompile(`job-[0-9a-f-]{36}`)

// named finds the names of parts and results in the text of a message.
var named = regexp.MustCompile(`(parts|results)/[a-z0-9]+`)

// fate decides the delays and faults of a message.
func (w *world) fate(from, to *port, kind string, text []byte) fate {
	key := fmt.Sprint(to.node, " ", kind, " ", jobID.FindString(string(text)))
	if kind == "merge" { // a node asks another for several merges at the same time
		objects := named.FindAllString(string(text), -1)
		slices.Sort(objects) // parts are listed in any order
		key += fmt.Sprint(objects)
	}
	f := fate{delay: w.latency(from.node, "ask", key), back: w.latency(from.node, "answer", key)}
	if from == to {
		return f
	}
	if !w.whole() {
		bad := w.active(from.node, "messages", func(b Fault) bool {
			return w.chance(fmt.Sprint("message ", from.node, key, f.delay, b.How)) < b.Rate
		})
		if bad != nil {
			switch bad.How {
			case "lost":
				f.lost = true
			case "unsaid":
				f.unsaid = true
			case "late":
				f.delay *= 1000 // 1 to 3 s
			case "again":
				f.again = f.back * 500
			}
			w.tell(from.node, "message."+kind, fmt.Sprintf("to node %d", to.node), bad.How)
			return f
		}
	}
	w.tell(from.node, "message."+kind, fmt.Sprintf("to node %d", to.node), "")
	return f
}
