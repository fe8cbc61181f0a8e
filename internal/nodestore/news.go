package nodestore

import (
	"encoding/binary"
	"errors"

	"github.com/fleetthrottle/throttle/internal/ledger"
)

// errNews says that bytes are no news.
var errNews = errors.New("nodestore: not news")

// AppendNews appends news as bytes, for backends that keep them so.
func AppendNews(b []byte, n *ledger.News) []byte {
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

// ParseNews returns the news that [AppendNews] made bytes of.
func ParseNews(b []byte) (n ledger.News, err error) {
	r := newsReader{b: b}
	for range r.count() {
		n.Called = append(n.Called, ledger.Place{Key: r.key(), Arrival: r.number(), Node: r.number()})
	}
	for range r.count() {
		n.Useless = append(n.Useless, ledger.Useless{Key: r.key(), From: r.number(), Before: r.number(), Lifted: r.flag()})
	}
	for range r.count() {
		n.Closed = append(n.Closed, ledger.Closed{Key: r.key(), Until: r.number()})
	}
	for range r.count() {
		n.Moved = append(n.Moved, r.key())
	}
	if r.failed || len(r.b) > 0 {
		return ledger.News{}, errNews
	}
	return n, nil
}

// A newsReader takes from bytes what AppendNews has appended. After a failure it returns zeros.
type newsReader struct {
	b      []byte
	failed bool
}

// count returns how many of a kind there are: each takes bytes of a key at least.
func (r *newsReader) count() int {
	n, took := binary.Uvarint(r.b)
	if took <= 0 || n > uint64(len(r.b)/len(ledger.Key{})) {
		r.failed = true
		return 0
	}
	r.b = r.b[took:]
	return int(n)
}

func (r *newsReader) number() int64 {
	n, took := binary.Varint(r.b)
	if took <= 0 {
		r.failed, r.b = true, nil
		return 0
	}
	r.b = r.b[took:]
	return n
}

func (r *newsReader) key() (key ledger.Key) {
	if len(r.b) < len(key) {
		r.failed, r.b = true, nil
		return key
	}
	r.b = r.b[copy(key[:], r.b):]
	return key
}

func (r *newsReader) flag() bool {
	if len(r.b) == 0 || r.b[0] > 1 {
		r.failed, r.b = true, nil
		return false
	}
	set := r.b[0] == 1
	r.b = r.b[1:]
	return set
}
