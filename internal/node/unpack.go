package node

import "encoding/binary"

// An Unpacker takes numbers and bytes from the front of the bytes of a row, a record or news. After a failure it returns zeros.
type Unpacker struct {
	rest   []byte
	failed bool
}

// Unpack returns an Unpacker of bytes.
func Unpack(b []byte) Unpacker { return Unpacker{rest: b} }

// fail empties the Unpacker, so that what is taken later fails, too.
func (u *Unpacker) fail() { u.failed, u.rest = true, nil }

// Number takes a varint.
func (u *Unpacker) Number() int64 {
	x, n := binary.Varint(u.rest)
	if n <= 0 {
		u.fail()
		return 0
	}
	u.rest = u.rest[n:]
	return x
}

// Count takes a uvarint: how many elements of at least size bytes follow.
func (u *Unpacker) Count(size int) int {
	x, n := binary.Uvarint(u.rest)
	if n <= 0 || x > uint64((len(u.rest)-n)/size) {
		u.fail()
		return 0
	}
	u.rest = u.rest[n:]
	return int(x)
}

// Bytes takes so many bytes, which are those that were given to Unpack.
func (u *Unpacker) Bytes(n int) []byte {
	if n < 0 || n > len(u.rest) {
		u.fail()
		return nil
	}
	b := u.rest[:n:n]
	u.rest = u.rest[n:]
	return b
}

// Key takes the key of a budget.
func (u *Unpacker) Key() (key [16]byte) {
	copy(key[:], u.Bytes(len(key)))
	return key
}

// Flag takes a byte that is 0 or 1.
func (u *Unpacker) Flag() bool {
	b := u.Bytes(1)
	if len(b) == 0 || b[0] > 1 {
		u.fail()
		return false
	}
	return b[0] == 1
}

// Rest takes all that is left.
func (u *Unpacker) Rest() []byte { return u.Bytes(len(u.rest)) }

// Done reports whether nothing has failed, and nothing is left.
func (u *Unpacker) Done() bool { return !u.failed && len(u.rest) == 0 }

// Failed reports whether the bytes were not what was taken from them.
func (u *Unpacker) Failed() bool { return u.failed }
