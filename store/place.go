package store

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"
)

// A Place is a caller's place in line, without the caller: Limiters.Reserve returns a Place
// to work that would have to wait. The text form of a Place is kept with the work, in a job
// of a queue for instance, and any program of the fleet can come again with it.
//
// A Place holds nothing of a budget, and nobody waits for a Place that does not come again.
// A program must not change its fields.
//
// The text names policies, and keys as hashes. It has a checksum and no signature: whoever
// can write the jobs can put work before other work of the same priority. The limits hold
// whatever the text says.
type Place struct {
	// ID is random. A place has the same ID after each visit.
	ID [8]byte

	// Issued is when the work came last, by the clock of its program.
	Issued time.Time

	// When is the time at which the work should come again, by the clock of the program
	// that reserved. Before When the turn may not have come; after When other work may have
	// gone first.
	When time.Time

	Priority Priority
	Demands  []PlaceDemand
	Turn     []byte // the store's own record of the arrival: see Store.KeepTurn
}

// A PlaceDemand is the cost of a place's work under one policy.
type PlaceDemand struct {
	Policy string   // the policy's name
	Key    [16]byte // as in Budget
	Cost   int      // 0 for work that is free under the policy
}

// RetryAfter returns how long it is until When, and 0 if When has passed.
func (p *Place) RetryAfter() time.Duration { return max(0, time.Until(p.When)) }

// String says when to come again. MarshalText returns the text form of the place.
func (p *Place) String() string {
	return "a place in line, to be redeemed at " + p.When.UTC().Format(time.RFC3339)
}

const (
	placeForm     = 1    // the version of the text form
	maxPlaceText  = 8192 // bytes
	maxDemands    = 64   // of a place
	maxPolicyName = 1024 // bytes
)

// MarshalText implements [encoding.TextMarshaler]. The text has only letters, digits, - and _.
func (p *Place) MarshalText() ([]byte, error) {
	b := append([]byte{placeForm}, p.ID[:]...)
	b = binary.AppendVarint(b, p.Issued.Unix())
	b = binary.AppendVarint(b, p.When.UnixMilli())
	b = binary.AppendVarint(b, int64(p.Priority))
	b = binary.AppendUvarint(b, uint64(len(p.Demands)))
	for i := range p.Demands {
		d := &p.Demands[i]
		b = binary.AppendUvarint(b, uint64(len(d.Policy)))
		b = append(append(b, d.Policy...), d.Key[:]...)
		b = binary.AppendUvarint(b, uint64(d.Cost))
	}
	return sealPlace(append(b, p.Turn...)), nil
}

// sealPlace returns the text form of the bytes of a place.
func sealPlace(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return base64.RawURLEncoding.AppendEncode(nil, b)
}

// UnmarshalText implements [encoding.TextUnmarshaler]. The error is a *[PlaceError], and
// leaves p as it was.
func (p *Place) UnmarshalText(text []byte) error {
	illegible := &PlaceError{Problem: PlaceIllegible}
	if len(text) > maxPlaceText {
		return illegible
	}

	b, err := base64.RawURLEncoding.Strict().AppendDecode(nil, text)
	if err != nil || len(b) < 4 {
		return illegible
	}

	// The last four bytes are the checksum of the bytes before: see sealPlace.
	sum := binary.BigEndian.Uint32(b[len(b)-4:])
	b = b[:len(b)-4]
	if crc32.ChecksumIEEE(b) != sum {
		return illegible
	}

	// Read in the order of MarshalText.
	r := placeReader{rest: b}
	var read Place
	form := r.take(1)
	copy(read.ID[:], r.take(len(read.ID)))
	read.Issued, read.When = time.Unix(r.number(), 0), time.UnixMilli(r.number())
	read.Priority = Priority(max(int64(PriorityLow), min(r.number(), int64(PriorityHigh))))

	for range r.count(maxDemands) {
		d := PlaceDemand{Policy: string(r.take(r.count(maxPolicyName)))}
		copy(d.Key[:], r.take(len(d.Key)))
		d.Cost = r.count(MaxCost)
		read.Demands = append(read.Demands, d)
	}

	if r.failed || form[0] != placeForm || len(read.Demands) == 0 {
		return illegible
	}

	// The turn has no length of its own, because it comes last.
	read.Turn = r.rest
	*p = read
	return nil
}

// A placeReader reads the bytes of a place. After a mistake, which is noted in failed, it
// reads zeros.
type placeReader struct {
	rest   []byte // what is not read yet
	failed bool
}

// take returns the next n bytes, or n zeros after a mistake.
func (r *placeReader) take(n int) []byte {
	r.failed = r.failed || n > len(r.rest)
	if r.failed {
		return make([]byte, n)
	}

	taken := r.rest[:n]
	r.rest = r.rest[n:]
	return taken
}

// number returns the next number, or 0 after a mistake.
func (r *placeReader) number() int64 {
	n, size := binary.Varint(r.rest)
	r.failed = r.failed || size <= 0
	if r.failed {
		return 0
	}

	r.rest = r.rest[size:]
	return n
}

// count returns the next count, or 0 after a mistake. A count above limit is a mistake.
func (r *placeReader) count(limit int) int {
	n, size := binary.Uvarint(r.rest)
	r.failed = r.failed || size <= 0 || n > uint64(limit)
	if r.failed {
		return 0
	}

	r.rest = r.rest[size:]
	return int(n)
}

// A PlaceProblem is the reason why a place cannot be redeemed.
type PlaceProblem uint8

// The reasons why a place cannot be redeemed.
const (
	PlaceIllegible PlaceProblem = iota + 1 // the text is not the text of a place, or was changed or cut
	PlaceForeign                           // the place was reserved in a different store: a Redis namespace, or a kind of store
	PlaceOther                             // the place was reserved for budgets that the work does not demand now
	PlaceUnknown                           // the limiters have no policy of the place's name
	PlaceExpired                           // more than a week has passed since When, and since Issued
	PlaceRedeemed                          // these limiters have redeemed the place, or are redeeming it
)

// A PlaceError says that a place cannot be redeemed, now or later. Nothing was spent. The
// work can reserve anew, without the place, and gets a new rank.
type PlaceError struct {
	Problem PlaceProblem // the reason
	Policy  string       // the policy that is unknown, with PlaceUnknown
}

// Error implements error.
func (e *PlaceError) Error() string {
	text := "throttle: this place cannot be redeemed: "
	switch e.Problem {
	case PlaceForeign:
		return text + "it was reserved in another store or another namespace"
	case PlaceOther:
		return text + "it was reserved for other budgets"
	case PlaceUnknown:
		return text + fmt.Sprintf("the limiters have no policy %q", e.Policy)
	case PlaceExpired:
		return text + "it should have come more than a week ago"
	case PlaceRedeemed:
		return text + "it has been redeemed"
	}

	return text + "its text is not that of a place"
}
