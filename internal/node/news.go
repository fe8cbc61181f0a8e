package node

import (
	"encoding/binary"
	"errors"

	"github.com/fleetthrottle/throttle/internal/ledger"
)

// errNews says that bytes are no news.
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
