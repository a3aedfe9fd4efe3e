package document

// A reader goes over JSON once without decoding it. What is no JSON makes it
// broken; it does not check what it has no need to read, such as the inside of
// numbers.
type reader struct {
	text   []byte
	at     int
	broken bool
}

// unknown goes over the next value and reports whether it has a member that
// the shape does not know.
func (r *reader) unknown(s *shape) bool {
	r.space()
	found := false
	switch {
	case s == nil || s == whole:
		r.value()
	case r.peek() == '{' && s.elements == nil:
		r.object(func(name []byte) {
			child, known := s.field(name)
			found = found || !known
			found = r.unknown(child) || found
		})
	case r.peek() == '[' && s.elements != nil:
		r.list(func() { found = r.unknown(s.elements) || found })
	default:
		r.value()
	}
	return found
}

// A member of an object: its name as JSON, quotes included, and its value.
type member struct{ name, value []byte }

// members lists the members of an object, not nil; nil for any other value.
func members(text []byte) []member {
	r := reader{text: text}
	if r.space(); r.peek() != '{' {
		return nil
	}
	list := make([]member, 0, 16)
	r.object(func(name []byte) { list = append(list, member{name, r.value()}) })
	return list
}

// elements lists the elements of an array, not nil; nil for any other value.
func elements(text []byte) [][]byte {
	r := reader{text: text}
	if r.space(); r.peek() != '[' {
		return nil
	}
	list := [][]byte{}
	r.list(func() { list = append(list, r.value()) })
	return list
}

// object goes over an object. visit gets each name and has to go over its
// value.
func (r *reader) object(visit func(name []byte)) {
	r.each('}', func() {
		r.space()
		name := r.string()
		r.space()
		r.expect(':')
		if !r.broken {
			visit(name)
		}
	})
}

// list goes over an array. visit has to go over each element.
func (r *reader) list(visit func()) { r.each(']', visit) }

// each goes over what stands between the bracket that is next and end.
func (r *reader) each(end byte, visit func()) {
	r.at++
	if r.space(); r.peek() == end {
		r.at++
		return
	}
	for !r.broken {
		visit()
		r.space()
		if r.peek() == end {
			r.at++
			return
		}
		r.expect(',')
	}
}

// value goes over a value and returns its text, without the space around it.
func (r *reader) value() []byte {
	r.space()
	from, depth := r.at, 0
	for !r.broken {
		switch r.peek() {
		case '"':
			r.string()
		case '{', '[':
			depth++
			r.at++
		case '}', ']':
			depth--
			r.at++
		case 0:
			r.broken = true
		case ',', ':', ' ', '\t', '\n', '\r':
			if r.at++; depth == 0 {
				r.broken = true
			}
		default:
			r.word()
		}
		if depth <= 0 {
			break
		}
	}
	if r.broken || depth < 0 {
		r.broken = true
		return nil
	}
	return r.text[from:r.at]
}

// word goes over a number, true, false or null.
func (r *reader) word() {
	for r.at < len(r.text) {
		switch r.text[r.at] {
		case ',', ':', ' ', '\t', '\n', '\r', '}', ']', '{', '[', '"':
			return
		}
		r.at++
	}
}

// string goes over a string and returns it, quotes included.
func (r *reader) string() []byte {
	from := r.at
	r.expect('"')
	for r.at < len(r.text) {
		switch r.text[r.at] {
		case '\\':
			r.at += 2
			continue
		case '"':
			r.at++
			if r.broken {
				return nil
			}
			return r.text[from:r.at]
		}
		r.at++
	}
	r.broken = true
	return nil
}

func (r *reader) space() {
	for r.at < len(r.text) {
		switch r.text[r.at] {
		case ' ', '\t', '\n', '\r':
			r.at++
		default:
			return
		}
	}
}

// peek returns the next byte, 0 at the end.
func (r *reader) peek() byte {
	if r.at < len(r.text) {
		return r.text[r.at]
	}
	return 0
}

func (r *reader) expect(c byte) {
	if r.peek() != c {
		r.broken = true
		return
	}
	r.at++
}
