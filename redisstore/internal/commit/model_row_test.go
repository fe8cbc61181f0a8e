package commit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// A modelRow is one as lua/row.lua keeps it.
type modelRow struct {
	head    [modelHead]float64
	entries []modelEntry
}

type modelEntry struct{ first, last, n int64 }

// modelHead is how many numbers a row begins with: TestHeadNumbers of redisstore has the same.
const modelHead = 38

// The fields of a head that the model looks at.
const (
	modelHeadSeen, modelHeadLost, modelHeadSpan, modelHeadTill, modelHeadPaused, modelHeadFrozen, modelHeadLevel                 = 0, 1, 2, 4, 5, 6, 7
	modelHeadBirths, modelHeadSize, modelHeadAt, modelHeadOld, modelHeadBefore, modelHeadFirst, modelHeadExpires, modelHeadOpens = 9, 18, 19, 20, 21, 22, 25, 26
	modelHeadLined                                                                                                               = 31
)

// modelReadRow takes a stored row apart.
func modelReadRow(raw string) (r modelRow, err error) {
	const size = 8 * modelHead
	if len(raw) < size {
		return r, fmt.Errorf("a row of %d bytes", len(raw))
	}
	for i := range r.head {
		r.head[i] = math.Float64frombits(binary.LittleEndian.Uint64([]byte(raw[8*i:])))
	}
	count := int(r.head[modelHeadSize])
	if count == 0 {
		return r, nil
	}
	body := raw[size+int(r.head[modelHeadLined]+r.head[modelHeadAt]):]
	prev := int64(0)
	for i := range 3 * (count - 1) {
		var v int64
		if v, body, err = modelUnpack(body); err != nil {
			return r, err
		}
		switch i % 3 {
		case 0:
			if i == 0 {
				v = 0 // counted from the entry's own end, which the head tells
			}
			r.entries = append(r.entries, modelEntry{first: prev + v})
		case 1:
			e := &r.entries[len(r.entries)-1]
			if i == 1 {
				e.first = int64(r.head[modelHeadOld]) - v
			}
			e.last = e.first + v
			prev = e.last
		case 2:
			r.entries[len(r.entries)-1].n = v
		}
	}
	last := modelEntry{int64(r.head[modelHeadFirst]), int64(r.head[modelHeadFirst+1]), int64(r.head[modelHeadFirst+2])}
	r.entries = append(r.entries, last)
	return r, nil
}

// modelUnpack reads one number of MessagePack.
func modelUnpack(s string) (v int64, rest string, err error) {
	if s == "" {
		return 0, "", errors.New("a row ends too early")
	}
	c := s[0]
	if c < 0x80 {
		return int64(c), s[1:], nil
	}
	size := map[byte]int{0xcb: 8, 0xcc: 1, 0xcd: 2, 0xce: 4, 0xcf: 8}[c]
	if size == 0 || len(s) <= size {
		return 0, "", fmt.Errorf("a row holds %x", s[:1])
	}
	var u uint64
	for _, b := range []byte(s[1 : 1+size]) {
		u = u<<8 | uint64(b)
	}
	if c == 0xcb {
		return int64(math.Float64frombits(u)), s[1+size:], nil
	}
	return int64(u), s[1+size:], nil
}
