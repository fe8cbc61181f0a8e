package redisstore

import (
	"encoding/binary"
	"math"
)

// Numbers are how the scripts are told and tell: 8 bytes each, the way that Lua
// keeps them. They are exact up to 2^53.
type numbers []byte

// add appends whole numbers.
func (n numbers) add(all ...int64) numbers {
	for _, v := range all {
		n = binary.LittleEndian.AppendUint64(n, math.Float64bits(float64(v)))
	}
	return n
}

// size is how many there are.
func (n numbers) size() int { return len(n) / 8 }

// at returns one of them.
func (n numbers) at(i int) int64 {
	return int64(math.Float64frombits(binary.LittleEndian.Uint64(n[8*i:])))
}

// mostNumber is more than a script ever says, and so little that sums and
// differences fit.
const mostNumber = 1 << 60

// sound reports whether they are numbers at all, and small enough to reckon with.
func (n numbers) sound() bool {
	for i := range n.size() {
		v := math.Float64frombits(binary.LittleEndian.Uint64(n[8*i:]))
		if !(math.Abs(v) <= mostNumber) { // NaN is not either
			return false
		}
	}
	return len(n)%8 == 0
}

// from returns all but the first few.
func (n numbers) from(i int) numbers { return n[8*i:] }
