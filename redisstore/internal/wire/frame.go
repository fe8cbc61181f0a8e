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
