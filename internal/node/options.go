package node

import (
	"crypto/rand"
	"encoding/binary"

	"github.com/fleetthrottle/throttle/internal/ledger"
)

// Options are those of a node.
type Options struct {
	Node     ledger.Node
	Arrivals *ledger.Arrivals // of the node; nil: new ones
	Rows     int              // about how many rows a step has at the most; 0: any number
}

// NewNode returns a number that no other node has.
func NewNode() int64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // which never fails
	return int64(binary.LittleEndian.Uint64(b[:])>>11) | 1
}
