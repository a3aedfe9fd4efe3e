package sim

// appendLogprobs writes the log probabilities of the pieces from..to, null where the
// request does not ask for them. They are
// made up: most tokens nearly certain, few unlikely. Like real ones they list
// reasoning and </think> too, and the chosen token is not always the likeliest,
// except at temperature 0.
func (g *generation) appendLogprobs(dst []byte, r *random, from, to int) []byte {
	if !g.req.Logprobs {
		return append(dst, "null"...)
	}
	dst = append(dst, `{"content":[`...)
	for i := from; i < to; i++ {
		if i > from {
			dst = append(dst, ',')
		}
		dst = g.appendLogprob(dst, r.Uint64(), i)
	}
	return append(dst, `]}`...)
}

// appendLogprob writes one entry out of 64 random bits.
func (g *generation) appendLogprob(dst []byte, bits uint64, i int) []byte {
	a, top := &g.answer, int(g.req.TopLogprobs)
	v := a.words
	level := int(bits % logprobLevels)
	// One token in eight was not the likeliest.
	surpassed := bits>>8&7 == 0 && g.req.Temperature != 0
	if surpassed {
		level |= logprobLevels / 4
	}
	if id := a.pieces[i].word; top == 1 && !surpassed && id != noWord { // most entries
		w, value := &v.words[id], v.logprobs[level]
		dst = append(dst, w.head...)
		dst = append(dst, value...)
		dst = append(dst, w.middle...)
		dst = append(dst, value...)
		return append(dst, w.end...)
	}
	other := int(bits >> 16 % uint64(len(v.words)))
	dst = v.appendEntry(dst, a, i, level)
	dst = append(dst, `,"top_logprobs":[`...)
	chosen := surpassed // whether the chosen token is still to be listed
	for rank := range top {
		if rank > 0 {
			dst = append(dst, ',')
		}
		switch {
		case rank == 0 && surpassed:
			dst = v.appendWord(dst, a.pieces[i].word, other, level/2)
		case rank == 0 || rank == 1 && chosen:
			dst = v.appendEntry(dst, a, i, level)
		default:
			below := level + (logprobLevels-1-level)*rank/(top+1)
			dst = v.appendWord(dst, a.pieces[i].word, other+rank, below)
		}
		dst = append(dst, '}')
	}
	return append(dst, `]}`...)
}

// appendEntry writes a piece with its log probability, without the closing
// brace.
func (v *vocabulary) appendEntry(dst []byte, a *answer, i, level int) []byte {
	if id := a.pieces[i].word; id != noWord {
		return v.appendKnown(dst, id, level)
	}
	token := a.token(i)
	dst = appendTokenHead(dst, token)
	dst = append(dst, v.logprobs[level]...)
	return appendTokenBytes(dst, token)
}

// appendWord writes some word other than the one to avoid.
func (v *vocabulary) appendWord(dst []byte, avoid int16, which, level int) []byte {
	id := int16(which % len(v.words))
	if id == avoid {
		id = int16((which + 1) % len(v.words))
	}
	return v.appendKnown(dst, id, level)
}

func (v *vocabulary) appendKnown(dst []byte, id int16, level int) []byte {
	w := &v.words[id]
	dst = append(dst, w.head...)
	dst = append(dst, v.logprobs[level]...)
	return append(dst, w.tail...)
}
