package ledger

import "encoding/binary"

// A Record is what a store keeps of the last call of one caller, beside the rows and
// changed in the same step: so that a call whose answer was lost can be made again and is
// done once. The calls of a caller, one after another, have growing numbers; a call that
// is repeated keeps its number, and its tries are counted. The zero Record is of a caller
// that made none.
type Record struct {
	call int64
	try  int64
}

// A Verdict is what a Record says of a try of a call.
type Verdict int

const (
	Do   Verdict = iota // it is to be done, and is recorded
	Done                // it was done before, by the try that Tried returns
	Late                // the caller has made other calls since: no caller waits for this one
)

// Begin is called first for a try of a call, in the step that does it.
func (r *Record) Begin(call, try int64) Verdict {
	switch {
	case call < r.call:
		return Late
	case call == r.call:
		return Done
	}
	r.call, r.try = call, try
	return Do
}

// IsBefore reports whether the record is as it was before a call, and after another one. A record that was removed is not.
func (r *Record) IsBefore(call int64) bool { return 0 < r.call && r.call < call }

// Tried returns which try of the last call was done: the caller has what it answered.
func (r *Record) Tried() int64 { return r.try }

// MarshalBinary returns the record in at most 32 bytes.
func (r *Record) MarshalBinary() ([]byte, error) {
	return binary.AppendVarint(binary.AppendVarint([]byte{version}, r.call), r.try), nil
}

// UnmarshalBinary makes r the record that MarshalBinary was called on.
func (r *Record) UnmarshalBinary(b []byte) error {
	if len(b) == 0 || b[0] != version {
		return ErrCorrupt
	}
	call, n := binary.Varint(b[1:])
	if n <= 0 {
		return ErrCorrupt
	}
	try, m := binary.Varint(b[1+n:])
	if m <= 0 || 1+n+m != len(b) {
		return ErrCorrupt
	}
	*r = Record{call, try}
	return nil
}
