package sim

// appendLogprobs writes the log probabilities of the pieces from..to. They are
// made up: most tokens nearly certain, few unlikely. Like real ones they list
// reasoning and </think> too, and the chosen token is not always the likeliest,
// except at temperature 0.
func (s *Server) appendLogprobs(dst []byte, g *generation, r *random, from, to int) []byte {
	dst = append(dst, `{"content":[`...)
	for i := from; i < to; i++ {
		if i > from {
			dst = append(dst, ',')
		}
		dst = s.appendLogprob(dst, g, r.Uint64(), i)
	}
	return append(dst, `]}`...)
}

// appendLogprob writes one entry out of 64 random bits.
func (s *Server) appendLogprob(dst []byte, g *generation, bits uint64, i int) []byte {
	a, top := &g.answer, int(g.req.TopLogprobs)
	level := int(bits % logprobLevels)
	// One token in eight was not the likeliest.
	surpassed := bits>>8&7 == 0 && g.req.Temperature != 0
	if surpassed {
		level |= logprobLevels / 4
	}
	if id := a.pieces[i].word; top == 1 && !surpassed && id != noWord { // most entries
		w, value := &s.words.words[id], s.words.logprobs[level]
		dst = append(dst, w.head...)
		dst = append(dst, value...)
		dst = append(dst, w.middle...)
		dst = append(dst, value...)
		return append(dst, w.end...)
	}
	other := int(bits >> 16 % uint64(len(s.words.words)))
	dst = s.appendEntry(dst, a, i, level)
	dst = append(dst, `,"top_logprobs":[`...)
	chosen := surpassed // whether the chosen token is still to be listed
	for rank := range top {
		if rank > 0 {
			dst = append(dst, ',')
		}
		switch {
		case rank == 0 && surpassed:
			dst = s.appendWord(dst, a.pieces[i].word, other, level/2)
		case rank == 0 || rank == 1 && chosen:
			dst = s.appendEntry(dst, a, i, level)
		default:
			below := level + (logprobLevels-1-level)*rank/(top+1)
			dst = s.appendWord(dst, a.pieces[i].word, other+rank, below)
		}
		dst = append(dst, '}')
	}
	return append(dst, `]}`...)
}

// appendEntry writes a piece with its log probability, without the closing
// brace.
func (s *Server) appendEntry(dst []byte, a *answer, i, level int) []byte {
	if id := a.pieces[i].word; id != noWord {
		return s.appendKnown(dst, id, level)
	}
	token := a.token(i)
	dst = appendTokenHead(dst, token)
	dst = append(dst, s.words.logprobs[level]...)
	return appendTokenBytes(dst, token)
}

// appendWord writes some word other than the one to avoid.
func (s *Server) appendWord(dst []byte, avoid int16, which, level int) []byte {
	id := int16(which % len(s.words.words))
	if id == avoid {
		id = int16((which + 1) % len(s.words.words))
	}
	return s.appendKnown(dst, id, level)
}

func (s *Server) appendKnown(dst []byte, id int16, level int) []byte {
	w := &s.words.words[id]
	dst = append(dst, w.head...)
	dst = append(dst, s.words.logprobs[level]...)
	return append(dst, w.tail...)
}
