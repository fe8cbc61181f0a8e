package wire

import (
	"encoding/binary"
	"errors"
	"math"
)

// ErrReply means that something else than the script answered.
var ErrReply = errors.New("redisstore: an answer that cannot be understood")

// A Frame is how the scripts are told and tell: numbers of 8 bytes each, the way
// that Lua keeps them. They are exact up to 2^53.
type Frame []byte

// Add appends whole numbers.
func (f Frame) Add(all ...int64) Frame {
	for _, v := range all {
		f = binary.LittleEndian.AppendUint64(f, math.Float64bits(float64(v)))
	}
	return f
}

// Increase adds one to the i-th number.
func (f Frame) Increase(i int) {
	binary.LittleEndian.PutUint64(f[8*i:], math.Float64bits(float64(f.At(i)+1)))
}

// Size is how many numbers there are.
func (f Frame) Size() int { return len(f) / 8 }

// At returns one of them.
func (f Frame) At(i int) int64 {
	return int64(math.Float64frombits(binary.LittleEndian.Uint64(f[8*i:])))
}

// From returns all but the first few.
func (f Frame) From(i int) Frame { return f[8*i:] }

// maxNumber is more than a script ever says, and so little that sums and
// differences fit.
const maxNumber = 1 << 60

// sound reports whether they are numbers at all, and small enough to reckon with.
func (f Frame) sound() bool {
	for i := range f.Size() {
		v := math.Float64frombits(binary.LittleEndian.Uint64(f[8*i:]))
		if !(math.Abs(v) <= maxNumber) { // NaN is not either
			return false
		}
	}
	return len(f)%8 == 0
}

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
