package node

import (
	"encoding/binary"
	"errors"

	"github.com/fleetthrottle/throttle/internal/ledger"
)

// errNews is the error of bytes that are no news.
var errNews = errors.New("node: not news")

// IsEmpty reports whether news say nothing.
func IsEmpty(n *ledger.News) bool {
	return len(n.Called)+len(n.Useless)+len(n.Closed)+len(n.Moved) == 0
}

// Append adds later news to all that came before.
func Append(all *ledger.News, n ledger.News) {
	all.Called = append(all.Called, n.Called...)
	all.Useless = append(all.Useless, n.Useless...)
	all.Closed = append(all.Closed, n.Closed...)
	all.Moved = append(all.Moved, n.Moved...)
}

// AppendNews appends news to b as bytes, for backends that keep them so.
func AppendNews(b []byte, n *ledger.News) []byte {
	// Four lists, each behind its length.
	b = binary.AppendUvarint(b, uint64(len(n.Called)))
	for _, p := range n.Called {
		b = binary.AppendVarint(binary.AppendVarint(append(b, p.Key[:]...), p.Arrival), p.Node)
	}

	b = binary.AppendUvarint(b, uint64(len(n.Useless)))
	for _, u := range n.Useless {
		b = binary.AppendVarint(binary.AppendVarint(append(b, u.Key[:]...), u.From), u.Before)
		if u.Lifted {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
	}

	b = binary.AppendUvarint(b, uint64(len(n.Closed)))
	for _, c := range n.Closed {
		b = binary.AppendVarint(append(b, c.Key[:]...), c.Until)
	}

	b = binary.AppendUvarint(b, uint64(len(n.Moved)))
	for _, key := range n.Moved {
		b = append(b, key[:]...)
	}

	return b
}

// ParseNews returns the news that [AppendNews] made bytes of, or an error for all other bytes.
func ParseNews(b []byte) (n ledger.News, err error) {
	// Each element has a key at least. By that Count bounds the memory that forged bytes can take.
	u := Unpack(b)
	for range u.Count(len(ledger.Key{})) {
		n.Called = append(n.Called, ledger.Place{Key: u.Key(), Arrival: u.Number(), Node: u.Number()})
	}

	for range u.Count(len(ledger.Key{})) {
		n.Useless = append(n.Useless, ledger.Useless{Key: u.Key(), From: u.Number(), Before: u.Number(), Lifted: u.Flag()})
	}

	for range u.Count(len(ledger.Key{})) {
		n.Closed = append(n.Closed, ledger.Closed{Key: u.Key(), Until: u.Number()})
	}

	for range u.Count(len(ledger.Key{})) {
		n.Moved = append(n.Moved, u.Key())
	}

	if !u.Done() {
		return ledger.News{}, errNews
	}

	return n, nil
}

// An Unpacker takes numbers and bytes from the front of the bytes of a row, a record or news. After a failure it returns zeros.
type Unpacker struct {
	rest   []byte
	failed bool
}

// Unpack returns an Unpacker of bytes.
func Unpack(b []byte) Unpacker { return Unpacker{rest: b} }

// fail empties the Unpacker, so that all later calls fail, too.
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

// Count takes a uvarint: how many elements of at least size bytes follow. It fails if the rest has no room for so many.
func (u *Unpacker) Count(size int) int {
	x, n := binary.Uvarint(u.rest)
	if n <= 0 || x > uint64((len(u.rest)-n)/size) {
		u.fail()
		return 0
	}
	u.rest = u.rest[n:]
	return int(x)
}

// Bytes takes n bytes, and returns them as a part of the bytes that were given to Unpack, not as a copy.
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

// Failed reports whether the bytes did not have the form that was asked for.
func (u *Unpacker) Failed() bool { return u.failed }
