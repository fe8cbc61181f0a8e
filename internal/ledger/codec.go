package ledger

import (
	"encoding/binary"
	"math"
)

// maxNumber bounds the numbers of a row, so that no sum of a few overflows. It is more
// than the microseconds from 1970 to 2250.
const maxNumber = 1 << 53

// A writer appends numbers to bytes: small ones take one byte.
type writer struct {
	b      []byte
	shares bool // the row has lanes of shares
	asked  bool // nodes are asked to come, or have a guard
}

func (w *writer) number(x int64) { w.b = binary.AppendUvarint(w.b, uint64(x)) }
func (w *writer) signed(x int64) { w.b = binary.AppendVarint(w.b, x) }
func (w *writer) float(x float64) {
	w.b = binary.BigEndian.AppendUint64(w.b, math.Float64bits(x))
}

// time writes a time by its distance to now; 0 is none.
func (w *writer) time(t, now int64) {
	if w.flag(t != 0); t != 0 {
		w.signed(t - now)
	}
}

func (w *writer) flag(x bool) {
	if x {
		w.b = append(w.b, 1)
	} else {
		w.b = append(w.b, 0)
	}
}

// A reader takes from bytes what a writer has written. After a failure it returns zeros.
type reader struct {
	b      []byte
	failed bool
	shares bool // the row has lanes of shares
	asked  bool // nodes are asked to come, or have a guard
}

// took moves the reader on, unless it failed.
func (rd *reader) took(n int, ok bool) bool {
	if rd.failed = rd.failed || n <= 0 || n > len(rd.b) || !ok; rd.failed {
		return false
	}
	rd.b = rd.b[n:]
	return true
}

// number reads one from 0 to maxNumber.
func (rd *reader) number() int64 {
	x, n := binary.Uvarint(rd.b)
	if !rd.took(n, x <= maxNumber) {
		return 0
	}
	return int64(x)
}

// signed reads one from -maxNumber to maxNumber.
func (rd *reader) signed() int64 {
	x, n := binary.Varint(rd.b)
	if !rd.took(n, -maxNumber <= x && x <= maxNumber) {
		return 0
	}
	return x
}

// wrapped reads any number.
func (rd *reader) wrapped() int64 {
	x, n := binary.Varint(rd.b)
	if !rd.took(n, true) {
		return 0
	}
	return x
}

// count reads a number that is at most that.
func (rd *reader) count(most int) int {
	x := rd.number()
	if x > int64(most) {
		rd.failed = true
	}
	if rd.failed {
		return 0
	}
	return int(x)
}

func (rd *reader) float() float64 {
	if len(rd.b) < 8 {
		rd.failed = true
		return 0
	}
	x := math.Float64frombits(binary.BigEndian.Uint64(rd.b))
	rd.b = rd.b[8:]
	return x
}

func (rd *reader) flag() bool {
	if len(rd.b) == 0 || rd.b[0] > 1 {
		rd.failed = true
		return false
	}
	x := rd.b[0] == 1
	rd.b = rd.b[1:]
	return x
}

func (rd *reader) time(now int64) int64 {
	if !rd.flag() {
		return 0
	}
	return now + rd.signed()
}
