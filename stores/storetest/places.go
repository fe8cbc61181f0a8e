package storetest

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// placeChecks are about stores that keep places: see [store.Traits]. Other stores pass them.
func placeChecks() []check {
	of := func(do func(*bench)) func(*bench) {
		return func(b *bench) {
			if b.store.Traits().Places {
				do(b)
			}
		}
	}

	return []check{
		{"P5_PlaceKeepsItsRank", of(placeKeepsItsRank)},
		{"P5_PlaceOutlivesItsLine", of(placeOutlivesItsLine)},
		{"P7_PlaceBlocksNobody", of(placeBlocksNobody)},
		{"P1_PlaceForged", of(placeForged)},
		{"Store_PlaceForeign", of(placeForeign)},
		{"Store_PlaceAppointments", of(placeAppointments)},
	}
}

// ten returns the charge of a new budget of 10 starts a second, 100 ms apart. Its first start is used, so that the next callers wait.
func (b *bench) ten(name string) store.Charge {
	b.Helper()
	c := charge(name, store.LeakyBucket(10, sec))
	if _, g := b.book(store.Booking{Charges: []store.Charge{c}, MaxWait: -1}); !g.OK {
		b.fatalf("no start in a new budget")
	}
	return c
}

// crowdFor lets n visitors come for a charge, 10 ms apart.
func (b *bench) crowdFor(c store.Charge, n int) (all []*visitor) {
	b.Helper()
	for range n {
		all = append(all, b.comes(store.Booking{Charges: []store.Charge{c}, MaxWait: -1}))
		b.at(b.now() + 10*ms)
	}
	return all
}

// leavesWithPlace lets a visitor leave its line, and returns its place, as the store keeps it. It fails if the visitor does not stand in
// line.
func (v *visitor) leavesWithPlace() []byte {
	v.b.Helper()
	if !v.waits() || v.grant.OK {
		v.b.fatalf("at %v a visitor should stand in line: %+v", v.b.now(), v.grant)
	}
	v.leaves()
	return v.b.store.KeepTurn(&v.booking, v.grant.Turn)
}

// redeems lets a new visitor come with a kept place. It fails if the store does not restore the place.
func (b *bench) redeems(c store.Charge, kept []byte) *visitor {
	b.Helper()
	booking := store.Booking{Charges: []store.Charge{c}, MaxWait: -1, Returns: true}
	turn, ok := b.store.RestoreTurn(&booking, kept)
	if !ok || turn == nil {
		b.fatalf("at %v the Turn that was kept is not restored: %v", b.now(), kept)
	}
	booking.Turn = turn
	return b.comes(booking)
}

// allBegin lets time pass until the visitors are over, and returns their starts. It fails if that takes longer than most.
func (b *bench) allBegin(most time.Duration, all ...*visitor) (starts []time.Duration) {
	b.Helper()
	(&play{bench: b}).allOver(b.now()+most, all...)
	for _, v := range all {
		starts = append(starts, v.begun())
	}
	return starts
}

// placeKeepsItsRank: a caller leaves its line and comes back later. It begins behind visitors that came
// before it, and before visitors that came after it and have no start yet.
func placeKeepsItsRank(b *bench) {
	c := b.ten("rank")

	// The twenty-first of forty leaves, and comes back when about ten have begun.
	all := b.crowdFor(c, 40)
	kept := all[20].leavesWithPlace()
	b.at(1200 * ms)
	back := b.redeems(c, kept)
	others := append(slices.Clone(all[:20]), all[21:]...)
	starts := b.allBegin(10*sec, append(others, back)...)
	at := starts[len(starts)-1] // when the caller that came back begins
	before := starts[:20]
	behind := starts[20 : len(starts)-1]
	if latest := slices.Max(before); at < latest-b.slack.Order {
		b.errorf("a caller with a place begins at %v, and one that came before it at %v", at, latest)
	}

	passed := 0
	for _, s := range behind {
		if s < at-b.slack.Order {
			passed++
		}
	}

	if passed > 0 {
		b.errorf("a caller with a place begins at %v, behind %d that came after it", at, passed)
	}
}

// placeOutlivesItsLine: a caller leaves with a place, and all others of its line have begun. Then a new line forms. A caller that
// comes with the place goes before its waiters.
func placeOutlivesItsLine(b *bench) {
	c := b.ten("outlives")
	old := b.crowdFor(c, 12)
	kept := old[11].leavesWithPlace()
	b.allBegin(10*sec, old[:11]...)
	b.at(b.now() + sec)
	b.crowdFor(c, 1) // begins at once
	young := b.crowdFor(c, 20)
	back := b.redeems(c, kept)
	starts := b.allBegin(10*sec, append(young, back)...)

	passed, at := 0, starts[20]
	for _, s := range starts[:20] {
		if s < at {
			passed++
		}
	}

	// Starts that are booked stay: those within the horizon, and those since the first young visitor came, 200 ms before. There is a start each
	// 100 ms.
	if most := int((200*ms + horizon + b.slack.Order) / (100 * ms)); passed > most {
		b.errorf("a caller with a place from an earlier line begins behind %d of 20 that came after it, want at most %d", passed, most)
	}
}

// placeBlocksNobody: more than half of a line leave with places and never come back. The others begin as if these had never come.
func placeBlocksNobody(b *bench) {
	c := b.ten("blocks")
	all := b.crowdFor(c, 60)

	// The first twenty stay, and of the rest every fifth.
	var staying []*visitor
	for i, v := range all {
		if i >= 20 && i%5 != 0 {
			v.leavesWithPlace()
		} else {
			staying = append(staying, v)
		}
	}

	starts := b.allBegin(time.Minute, staying...)
	slices.Sort(starts)
	if last, want := starts[len(starts)-1], time.Duration(len(staying))*c.Span(); last > want+b.slack.Start+10*ms {
		b.errorf("%d callers remain in line, and the last begins at %v, want %v", len(staying), last, want)
	}
	if st, err := b.store.Status(b.Context(), c); err != nil || st.Waiting != 0 {
		b.errorf("%d wait (%v), and nobody is there", st.Waiting, err)
	}
}

// placeForged: however a kept place is changed, and however often it is redeemed, the limit holds.
func placeForged(b *bench) {
	c := b.ten("forged")
	all := b.crowdFor(c, 30)
	kept := all[29].leavesWithPlace()
	all = all[:29]

	rnd := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		// Up to three bits are wrong, or none: then the place is redeemed once more.
		forged := slices.Clone(kept)
		for range rnd.IntN(4) {
			forged[rnd.IntN(len(forged))] ^= byte(1 << rnd.IntN(8))
		}

		booking := store.Booking{Charges: []store.Charge{c}, MaxWait: -1, Returns: true}
		if turn, ok := b.store.RestoreTurn(&booking, forged); ok && turn != nil {
			booking.Turn = turn
			all = append(all, b.comes(booking))
		}

		b.at(b.now() + 5*ms)
	}

	starts := b.allBegin(time.Minute, all...)
	slices.Sort(starts)

	for i, s := range starts[1:] {
		if s-starts[i] < c.Span() {
			b.errorf("starts at %v and %v, want %v between them", starts[i], s, c.Span())
		}
	}
}

// placeForeign: a place of a foreign store, or of nobody, is no Turn.
func placeForeign(b *bench) {
	booking := store.Booking{Charges: []store.Charge{b.ten("foreign")}, MaxWait: -1}
	own := b.store.KeepTurn(&booking, nil)
	if turn, ok := b.store.RestoreTurn(&booking, own); !ok || turn != nil {
		b.errorf("a caller that was in no line: %v, %v; want no Turn, and true", turn, ok)
	}
	for _, foreign := range [][]byte{nil, {}, {'?'}, append([]byte{own[0] ^ 0x20}, own[1:]...), append(slices.Clone(own), 1, 2, 3)} {
		if _, ok := b.store.RestoreTurn(&booking, foreign); ok {
			b.errorf("%v is taken for a Turn that this store kept: it keeps no Turn as %v", foreign, own)
		}
	}
}

// placeAppointments: callers that leave are told to come one by one. Callers that come back are not told to come
// behind all that left after them.
func placeAppointments(b *bench) {
	c := charge("appointments", store.PerSecond(10))
	expect := func(wait time.Duration, cost int, again bool, want time.Duration) {
		b.Helper()
		got, err := b.store.Appoint(b.Context(), costing(c, cost), wait, again)
		if err != nil || got != want {
			b.errorf("at %v: an appointment in %v, %v; want %v", b.now(), got, err, want)
		}
	}

	// An appointment takes cost × 100 ms, and the next comes behind it.
	expect(sec, 1, false, sec)
	expect(sec, 5, false, 1100*ms)
	expect(sec, 1, false, 1600*ms)

	// Callers who come back have appointments of their own.
	expect(sec, 1, true, sec)
	expect(sec, 1, true, 1100*ms)

	// At 2 s the appointment at 3 s still stands, so the next is at 3.1 s. The appointments of those who came back are over.
	expect(3*sec, 1, false, 3*sec)
	b.at(2 * sec)
	expect(0, 1, false, 1100*ms)
	expect(0, 1, true, 0)
}
