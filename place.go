package throttle

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/internal/farthest"
	"github.com/fleetthrottle/throttle/store"
)

// A Place is a caller's place in line, without the caller: [Limiters.Reserve] returns it to work
// that would have to wait. It says when to come again. Its text form is kept with the work, in a
// job of a queue for instance, and any program of the fleet redeems it with [Limiters.Redeem].
//
// A place holds nothing of a budget. Nobody waits for a place that does not come again.
//
// The text names policies, and keys as hashes. It has a checksum and no signature: who can write
// the jobs can put work before other work of the same priority. The limits hold whatever the text
// says.
type Place struct {
	id       [8]byte // random; the same for the place after each visit
	issued   time.Time
	when     time.Time
	priority Priority
	demands  []placeDemand
	turn     []byte // as the store keeps it: see store.Store.KeepTurn
}

// A placeDemand is what the work of a place takes from one budget.
type placeDemand struct {
	policy string
	key    [16]byte // as in Budget
	cost   int      // 0: the work costs nothing under the policy
}

// When returns the time at which the place should be redeemed, by the clock of the program that
// reserved it. Earlier it may be too early; later, other work may have gone first.
func (p *Place) When() time.Time { return p.when }

// RetryAfter returns how long it is until [Place.When]: 0 if that has come.
func (p *Place) RetryAfter() time.Duration { return max(0, time.Until(p.when)) }

// String says when to come again. The text form is that of MarshalText.
func (p *Place) String() string {
	return "a place in line, to be redeemed at " + p.when.UTC().Format(time.RFC3339)
}

const (
	// placeLife is how long after its When a place can be redeemed. The text of an older place may
	// come from a backup.
	placeLife = 7 * 24 * time.Hour

	placeForm     = 1    // the version of the text form
	mostPlaceText = 8192 // bytes
	mostPlaced    = 64   // demands
	mostNamed     = 1024 // bytes of a policy's name
)

// MarshalText implements [encoding.TextMarshaler]. The text has only letters, digits, - and _.
func (p *Place) MarshalText() ([]byte, error) {
	b := append([]byte{placeForm}, p.id[:]...)
	b = binary.AppendVarint(b, p.issued.Unix())
	b = binary.AppendVarint(b, p.when.UnixMilli())
	b = binary.AppendVarint(b, int64(p.priority))
	b = binary.AppendUvarint(b, uint64(len(p.demands)))
	for i := range p.demands {
		d := &p.demands[i]
		b = binary.AppendUvarint(b, uint64(len(d.policy)))
		b = append(append(b, d.policy...), d.key[:]...)
		b = binary.AppendUvarint(b, uint64(d.cost))
	}
	return sealPlace(append(b, p.turn...)), nil
}

// sealPlace returns the text form of the bytes of a place.
func sealPlace(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return base64.RawURLEncoding.AppendEncode(nil, b)
}

// UnmarshalText implements [encoding.TextUnmarshaler]. The error is a *[PlaceError].
func (p *Place) UnmarshalText(text []byte) error {
	illegible := &PlaceError{Problem: PlaceIllegible}
	if len(text) > mostPlaceText {
		return illegible
	}
	b, err := base64.RawURLEncoding.Strict().AppendDecode(nil, text)
	if err != nil || len(b) < 4 {
		return illegible
	}
	sum := binary.BigEndian.Uint32(b[len(b)-4:])
	b = b[:len(b)-4]
	if crc32.ChecksumIEEE(b) != sum {
		return illegible
	}
	r := placeReader{rest: b}
	var read Place
	form := r.take(1)
	copy(read.id[:], r.take(len(read.id)))
	read.issued, read.when = time.Unix(r.number(), 0), time.UnixMilli(r.number())
	read.priority = Priority(max(int64(PriorityLow), min(r.number(), int64(PriorityHigh))))
	for range r.count(mostPlaced) {
		d := placeDemand{policy: string(r.take(r.count(mostNamed)))}
		copy(d.key[:], r.take(len(d.key)))
		d.cost = r.count(store.MaxCost + 1)
		read.demands = append(read.demands, d)
	}
	if r.failed || form[0] != placeForm || len(read.demands) == 0 {
		return illegible
	}
	read.turn = r.rest
	*p = read
	return nil
}

// A placeReader reads the bytes of a place. After a mistake it reads zeros.
type placeReader struct {
	rest   []byte
	failed bool
}

// take returns the next n bytes.
func (r *placeReader) take(n int) []byte {
	if r.failed = r.failed || n > len(r.rest); r.failed {
		return make([]byte, n)
	}
	taken := r.rest[:n]
	r.rest = r.rest[n:]
	return taken
}

// number returns the next number.
func (r *placeReader) number() int64 {
	n, size := binary.Varint(r.rest)
	if r.failed = r.failed || size <= 0; r.failed {
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

// count returns the next count, which is at most most.
func (r *placeReader) count(most int) int {
	n, size := binary.Uvarint(r.rest)
	if r.failed = r.failed || size <= 0 || n > uint64(min(most, math.MaxInt)); r.failed {
		return 0
	}
	r.rest = r.rest[size:]
	return int(n)
}

// A PlaceProblem is why a place cannot be redeemed.
type PlaceProblem uint8

const (
	PlaceIllegible PlaceProblem = iota + 1 // the text is none of a place, or was changed or cut
	PlaceForeign                           // it was reserved in another store: another Redis namespace, or the memory of another kind of store
	PlaceOther                             // it was reserved for other budgets than those that are demanded
	PlaceUnknown                           // none of the limiters' policies has the name of its policy
	PlaceExpired                           // more than a week has passed since it should have come
	PlaceRedeemed                          // these limiters have redeemed it, or do so now
)

// A PlaceError says why a place cannot be redeemed, whenever it comes. Nothing was spent. The work
// can reserve anew, and has a new rank then.
type PlaceError struct {
	Problem PlaceProblem
	Policy  string // of PlaceUnknown
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

// Reserve is Acquire for work that can be put aside, such as a job of a queue. It returns a permit
// if the work may start soon, and else a [Place]: the worker is free for other work, and the place
// says when to come again. Only one of permit, place and error is not nil.
//
// "Soon" is as long as [WithMaxWait] of the context says, 2 seconds without it: for so long
// Reserve waits in line. Config.MaxWait does not count. Let it be longer than the time between two
// visits of the queue, if that is long: a job that is due is then there when its turn comes. A
// deadline of the context ends the call, and not the place.
//
// The error is that of [Limiters.Acquire]: a *[LimitError] says here that no wait helps.
func (l *Limiters) Reserve(ctx context.Context, demands ...Demand) (*Permit, *Place, error) {
	a, err := l.newReservation(ctx)
	if err != nil {
		return nil, nil, err
	}
	return l.reserve(ctx, a, nil, func() error {
		s := l.policies.Load()
		return a.useQuote(ctx, a.newQuote(s).priceDemands(s, demands, a.Priority))
	})
}

// Redeem is Reserve for work that has a place. The work stands in line where it stood when it
// reserved, before all callers of its priority that came later, and with the priority that it had then. If its
// turn has not come, Redeem returns a place with the same rank and another time to come. If its turn comes within half a second, or
// 150 milliseconds more than a horizon, Redeem waits for it, also with a shorter WithMaxWait: otherwise the place would never come to its turn.
//
// A *[PlaceError] says that the place cannot be redeemed at all: reserve anew. After any other error
// the place is as good as before.
//
// With demands the place must be one of the same budgets, and the work costs what the demands say. Without
// demands it costs what the text of the place says, so who can change the text can change that.
//
// A place is good for one permit, and again after [Permit.Cancel]. Limiters know of 8192 places that they redeemed last. A place that another
// program has redeemed gets a permit once more, if there is room: it is one more start within the limit.
func (l *Limiters) Redeem(ctx context.Context, place *Place, demands ...Demand) (*Permit, *Place, error) {
	a, err := l.newReservation(ctx)
	if err != nil {
		return nil, nil, err
	}
	if place == nil {
		place = new(Place)
	}
	a.Priority, a.Ranked = place.priority, true
	restored := false
	price := func() error {
		s := l.policies.Load()
		q := a.newQuote(s)
		err := q.pricePlace(s, place)
		if err == nil && len(demands) > 0 {
			own := slices.Clone(q.charges)
			if err = q.priceDemands(s, demands, place.priority); err == nil && !slices.EqualFunc(own, q.charges, isOfBudget) {
				err = &PlaceError{Problem: PlaceOther}
			}
		}
		if err := a.useQuote(ctx, err); err != nil || restored {
			return err
		}
		turn, ok := a.store.RestoreTurn(&store.Booking{Charges: a.Booking.Charges, Priority: a.Priority}, place.turn)
		if !ok {
			return &PlaceError{Problem: PlaceForeign}
		}
		restored = true
		a.Return(turn)
		return nil
	}
	if err := place.check(); err != nil {
		return nil, nil, err
	}
	if !l.redeemed.add(place.id) {
		return nil, nil, &PlaceError{Problem: PlaceRedeemed}
	}
	permit, later, err := l.reserve(ctx, a, place, price)
	unredeem := func() { l.redeemed.remove(place.id) }
	if permit != nil {
		permit.unredeem = unredeem
	} else {
		unredeem()
	}
	return permit, later, err
}

// isOfBudget reports whether two charges are of one budget.
func isOfBudget(a, b store.Charge) bool { return a.Budget == b.Budget }

// check returns the error of a place that cannot be redeemed whatever the policies are.
func (p *Place) check() error {
	last := p.issued
	if p.when.After(last) {
		last = p.when
	}
	switch {
	case !slices.ContainsFunc(p.demands, func(d placeDemand) bool { return d.cost > 0 }):
		return &PlaceError{Problem: PlaceIllegible}
	case time.Since(last) > placeLife:
		return &PlaceError{Problem: PlaceExpired}
	}
	return nil
}

// CheckPlaces returns nil if the store of the limiters keeps places, and else the *[ConfigError] with which Reserve
// and Redeem fail. A program that needs places calls it at its start.
func (l *Limiters) CheckPlaces() error {
	if !l.traits.Places {
		return &ConfigError{"", "Store", errors.New("keeps no places: use memstore or redisstore, or call Acquire, which waits")}
	}
	return nil
}

// A reservation is an acquisition that ends with a permit or a place.
type reservation struct {
	quotedAcquisition
}

// defaultPatience is for how long Reserve waits in line.
const defaultPatience = 2 * time.Second

// newReservation returns a reservation of a caller that waits in line for as long as WithMaxWait of the
// context says.
func (l *Limiters) newReservation(ctx context.Context) (*reservation, error) {
	if err := l.CheckPlaces(); err != nil {
		return nil, err
	}
	a, o := new(reservation), optionsOf(ctx)
	a.init(&l.engine)
	a.Priority = o.priority

	a.Patience = defaultPatience
	if o.setMaxWait && o.maxWait != 0 {
		a.Patience = max(time.Millisecond, min(o.maxWait, farthest.Wait))
	}
	return a, nil
}

// reserve returns the permit of a caller for the charges that price sets, or its place. old is the place with
// which the caller came; nil: it came without one.
func (l *Limiters) reserve(ctx context.Context, a *reservation, old *Place, price func() error) (*Permit, *Place, error) {
	permit, err := l.acquire(ctx, new(Permit), &a.quotedAcquisition, price)
	if permit != nil {
		var unset contextOptions
		permit.start.SetMaxWait(unset.maxWaitOr(ctx, l.defaultMaxWait)) // Renew has the MaxWait of the limiters
	}

	var limited *LimitError
	if !errors.As(err, &limited) || limited.cost > 0 || limited.RetryAfter == Never || a.Grant.Held < 0 {
		return permit, nil, err
	}
	return nil, a.place(ctx, old, limited.RetryAfter), nil
}

// place returns the place of a caller that has left its line, or was refused. wait is how long the store
// says that the caller would have waited.
func (a *reservation) place(ctx context.Context, old *Place, wait time.Duration) *Place {
	p := &Place{issued: time.Now(), priority: a.Priority, turn: a.store.KeepTurn(&a.Booking, a.Grant.Turn)}
	for i := range a.policyCount() {
		policy, c := a.policy(i)
		d := placeDemand{policy: policy.Name, key: c.Budget.Key, cost: c.Cost}
		if i >= len(a.Booking.Charges) {
			d.cost = 0
		}
		p.demands = append(p.demands, d)
	}
	if old != nil {
		p.id = old.id
	} else {
		rand.Read(p.id[:]) // never fails
	}
	p.when = p.issued.Add(a.comeIn(ctx, old, wait))
	return p
}

// leastReturn is the least RetryAfter of a place.
const leastReturn = 100 * time.Millisecond

// comeIn returns in how long a caller with a place should come again. It comes early by half of its patience, and stands
// in line then. One that came before its time keeps its appointment.
func (a *reservation) comeIn(ctx context.Context, old *Place, wait time.Duration) time.Duration {
	c := &a.Booking.Charges[a.Grant.Held]
	if wait <= 0 { // nobody knows when a slot will be free
		wait = a.Patience
	}
	if left := a.Patience / 2; old == nil || old.RetryAfter() < wait-left {
		ctx, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		if appointed, err := a.store.Appoint(ctx, *c, wait, old != nil); err == nil {
			wait = max(wait, appointed)
		}
		return max(leastReturn, wait-left)
	}
	return max(leastReturn, old.RetryAfter())
}

// pricePlace sets the quote to what the work of a place costs.
func (q *quote) pricePlace(s *policySet, place *Place) error {
	q.charges, q.policies, q.zeroCost = q.charges[:0], q.policies[:0], q.zeroCost[:0]
	for i := range place.demands {
		d := &place.demands[i]
		p := s.byName[d.policy]
		if p == nil {
			return &PlaceError{PlaceUnknown, d.policy}
		}
		c := p.charge
		if isForAll := d.key == c.Budget.Key; isForAll == p.hasKeys() { // the policy has got keys since, or lost them
			return &PlaceError{Problem: PlaceOther}
		}
		c.Budget.Key, c.Reserve = d.key, p.reserves.forPriority(place.priority)
		if d.cost == 0 {
			q.zeroCost = append(q.zeroCost, zeroCost{p, c})
			continue
		}
		c.Cost = d.cost
		q.add(p, c)
	}
	return nil
}

// mostRedeemed is how many places limiters know at least that they have redeemed.
const mostRedeemed = 8192

// redeemedPlaces are the places that were redeemed last. The zero value is ready.
type redeemedPlaces struct {
	mu         sync.Mutex
	last, more map[[8]byte]struct{} // the last ones, and as many before them
}

// add adds a place, and returns false if it is known.
func (r *redeemedPlaces) add(id [8]byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, isLast := r.last[id]
	if _, isMore := r.more[id]; isLast || isMore {
		return false
	}
	if r.last == nil || len(r.last) == mostRedeemed {
		r.last, r.more = make(map[[8]byte]struct{}), r.last
	}
	r.last[id] = struct{}{}
	return true
}

// remove takes a place out that was not redeemed after all.
func (r *redeemedPlaces) remove(id [8]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, id)
	delete(r.more, id)
}
