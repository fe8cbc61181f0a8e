package wire_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"

	"github.com/fleetthrottle/throttle/internal/ledger"
)

// A storedRow is what a budget's row says, whichever engine has stored it. Times are microseconds of the store's clock. It
// leaves out what one engine alone needs: the lifts of internal/ledger; the generations, the bytes and the
// expiry of lua/row.lua.
type storedRow struct {
	Seen, Lost, Span, Most, Until int64
	Paused, Ban, Probe, Times     int64
	Frozen, Level, Unit           int64
	High, Normal, Low, Pin        int64 // the last starts that waiters of each priority got, and the last one beyond the horizon
	CeilingTop                    float64
	CeilingFell, CeilingWindow    int64
	Told, Each, Heard             int64 // the note
	Size, Total                   int64
	Entries                       []storedEntry
	QueueOrSlots, Stored, OpensAt int64 // nobody waits in these rows, so these are 0, 1 and 0
}

// A storedEntry says that N starts lie in [First, Last].
type storedEntry struct{ First, Last, N int64 }

// difference returns the first field in which two rows differ, with both values, or "" if they are equal. a is the row of Go, and b that of Lua.
func (a storedRow) difference(b storedRow) string {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range x.NumField() {
		name := x.Type().Field(i).Name
		if name == "Entries" {
			for k := range min(len(a.Entries), len(b.Entries)) {
				if a.Entries[k] != b.Entries[k] {
					return fmt.Sprintf("entry %d of %d and %d: %+v in Go, %+v in Lua", k, len(a.Entries), len(b.Entries), a.Entries[k], b.Entries[k])
				}
			}
		} else if x.Field(i).Interface() != y.Field(i).Interface() {
			return fmt.Sprintf("%s: %v in Go, %v in Lua", name, x.Field(i), y.Field(i))
		}
	}
	return ""
}

// holdsNothing reports whether a row decides the same as one that does not exist.
func (a storedRow) holdsNothing() bool {
	return a.Size == 0 && a.Lost == 0 && a.Paused == 0 && a.CeilingTop == 0 && a.Told == 0 && max(a.High, a.Normal, a.Low, a.Pin) <= 0
}

// readGoRow returns what a row of internal/ledger says, by its bytes: see Row.MarshalBinary.
func readGoRow(r *ledger.Row) (row storedRow, err error) {
	b, err := r.MarshalBinary()
	if err != nil {
		return row, err
	}
	signed := func() int64 {
		x, n := binary.Varint(b)
		b = b[n:]
		return x
	}
	number := func() int64 {
		x, n := binary.Uvarint(b)
		b = b[n:]
		return int64(x)
	}
	at := func() int64 { // a time, as its distance from Seen
		is := b[0] == 1
		if b = b[1:]; !is {
			return 0
		}
		return row.Seen + signed()
	}

	told := (b[0]-1)&4 != 0
	b = b[1:] // the version
	row.Seen, row.Span, row.Most = number(), number(), number()
	row.Ban, row.Probe, row.Times = number(), number(), number()
	row.Level, row.CeilingWindow = number(), number()
	_ = number() // lifts
	row.Unit = signed()
	row.CeilingTop = math.Float64frombits(binary.BigEndian.Uint64(b))
	b = b[8:]
	row.Lost, row.Until, row.Paused, row.CeilingFell = at(), at(), at(), at()
	row.High, row.Normal, row.Low, row.Pin = at(), at(), at(), at()
	row.Frozen = at()
	if told {
		row.Told, row.Each, row.Heard = number(), number(), row.Seen+signed()
	}
	row.Size, row.Stored = number(), 1
	last := row.Seen
	for range row.Size {
		e := storedEntry{First: last + signed()}
		e.Last = e.First + number()
		e.N = number()
		last = e.Last
		row.Entries, row.Total = append(row.Entries, e), row.Total+e.N
	}
	for range 3 {
		if number() != 0 {
			row.QueueOrSlots = 1
			break
		}
	}
	return row, nil
}

// readLuaRow returns what a row says that is stored in the form of lua/row.lua.
func readLuaRow(text string) (row storedRow, err error) {
	const size = 40 // numbers of the head
	if len(text) < 8*size {
		return row, fmt.Errorf("%d bytes are no row", len(text))
	}
	head := make([]float64, size)
	for i := range head {
		head[i] = math.Float64frombits(binary.LittleEndian.Uint64([]byte(text[8*i:])))
	}
	at := 0
	next := func() int64 { at++; return int64(head[at-1]) }
	row.Seen, row.Lost, row.Span, row.Most, row.Until, row.Paused, row.Frozen, row.Level, row.Unit =
		next(), next(), next(), next(), next(), next(), next(), next(), next()
	at += 4 // generations
	named := next()
	at += 2 // older generations
	row.Total, row.Size = next(), next()
	from := next()
	at += 2 // old and before
	final := storedEntry{next(), next(), next()}
	at++ // expires
	row.OpensAt = next()
	row.High, row.Normal, row.Low, row.Pin, row.QueueOrSlots = next(), next(), next(), next(), next()
	row.Ban, row.Probe, row.Times = next(), next(), next()
	row.CeilingTop = head[at]
	at++
	row.CeilingFell, row.CeilingWindow = next(), next()
	row.Told, row.Each, row.Heard = next(), next(), next()
	row.Stored = 1

	numbers, err := unpack(text[8*size+int(named+row.QueueOrSlots+from):])
	if err != nil {
		return row, err
	}
	last := int64(0)
	for i := 0; i+2 < len(numbers); i += 3 {
		e := storedEntry{First: last + numbers[i], N: numbers[i+2]}
		e.Last = e.First + numbers[i+1]
		last = e.Last
		row.Entries = append(row.Entries, e)
	}
	if row.Size > 0 {
		row.Entries = append(row.Entries, final)
	}

	// The first distance is that from a moment that only scripts know. The last entry before the one in the head ends at before.
	if k := len(row.Entries) - 2; k >= 0 {
		shift := int64(head[20]) - row.Entries[k].Last
		for i := range k + 1 {
			row.Entries[i].First, row.Entries[i].Last = row.Entries[i].First+shift, row.Entries[i].Last+shift
		}
	}
	if int64(len(row.Entries)) != row.Size {
		return row, fmt.Errorf("%d entries where the head says %d", len(row.Entries), row.Size)
	}
	return row, nil
}

// unpack reads whole numbers in MessagePack.
func unpack(text string) (all []int64, err error) {
	for b := []byte(text); len(b) > 0; {
		kind := b[0]
		if kind < 0x80 || kind >= 0xe0 {
			all, b = append(all, int64(int8(kind))), b[1:]
			continue
		}
		if kind < 0xcc || kind > 0xd3 {
			return nil, fmt.Errorf("no whole number in MessagePack: %#x", kind)
		}
		width := 1 << ((kind - 0xcc) % 4)
		if len(b) < 1+width {
			return nil, errors.New("a number in MessagePack that is cut off")
		}
		x := uint64(0)
		for _, c := range b[1 : 1+width] {
			x = x<<8 | uint64(c)
		}
		if kind >= 0xd0 {
			x = uint64(int64(x<<(64-8*width)) >> (64 - 8*width))
		}
		all, b = append(all, int64(x)), b[1+width:]
	}
	return all, nil
}
