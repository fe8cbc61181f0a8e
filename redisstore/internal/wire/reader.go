package wire

// A reader reads a reply from its beginning. Where the reply ends too early it reads
// zeros, and fails.
type reader struct {
	rest   Frame
	failed bool
}

// next returns the next number.
func (r *reader) next() int64 {
	if len(r.rest) == 0 {
		r.failed = true
		return 0
	}
	v := r.rest.At(0)
	r.rest = r.rest.From(1)
	return v
}

// peek returns the next number, which is read again.
func (r *reader) peek() int64 {
	if len(r.rest) == 0 {
		return r.next()
	}
	return r.rest.At(0)
}

// count returns how many numbers of a list follow, which has one or more for each.
func (r *reader) count() int {
	n := r.next()
	if n < 0 || n > int64(r.rest.Size()) {
		r.failed = true
		return 0
	}
	return int(n)
}

// check fails the reader if something is not as it has to be.
func (r *reader) check(good bool) { r.failed = r.failed || !good }

// end returns the error of a reply that was too short, too long, or made no sense.
func (r *reader) end() error {
	if r.failed || len(r.rest) > 0 {
		return ErrReply
	}
	return nil
}
