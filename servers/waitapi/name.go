package waitapi

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"time"
)

// The parts of a permit's name, in bytes.
const (
	nameRandom = 16
	nameExpiry = 8 // when the permit expires unless it is acquired again, in nanoseconds since the handler was made
	nameMAC    = 16
)

// A namer makes the names of permits: nobody can guess one. A name says itself whether this handler
// made it, so that nothing has to be kept of a permit that is gone.
type namer struct {
	secret [32]byte
	begun  time.Time
}

func newNamer() *namer {
	n := &namer{begun: time.Now()}
	rand.Read(n.secret[:]) // never fails
	return n
}

// name returns the name of a permit.
func (n *namer) name(expiry time.Time) string {
	b := make([]byte, nameRandom, nameRandom+nameExpiry+nameMAC)
	rand.Read(b)
	b = binary.BigEndian.AppendUint64(b, uint64(expiry.Sub(n.begun)))
	return base64.RawURLEncoding.EncodeToString(append(b, n.mac(b)...))
}

// knows reports whether the handler made a name, and whether the permit's first lifetime is over.
func (n *namer) knows(name string) (known, over bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(name)
	if err != nil || len(b) != nameRandom+nameExpiry+nameMAC {
		return false, false
	}
	b, mac := b[:nameRandom+nameExpiry], b[nameRandom+nameExpiry:]
	if !hmac.Equal(mac, n.mac(b)) {
		return false, false
	}
	return true, time.Since(n.begun) >= time.Duration(binary.BigEndian.Uint64(b[nameRandom:]))
}

func (n *namer) mac(b []byte) []byte {
	h := hmac.New(sha256.New, n.secret[:])
	h.Write(b)
	return h.Sum(nil)[:nameMAC]
}
