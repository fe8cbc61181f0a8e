package twostores

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// Differ has random callers ask two stores the same, in a bubble of synctest. All answers must be the
// same, to the microsecond, except for the handles of starts.
func Differ(t *testing.T, seed uint64, moves int, one, other store.Store) {
	d := &differential{T: t, Rand: rand.New(rand.NewPCG(seed, 30)), seed: seed, stores: [2]store.Store{one, other}}
	for range moves {
		d.move()
	}
}

// A differential asks two stores the same.
type differential struct {
	*testing.T
	*rand.Rand
	seed   uint64
	stores [2]store.Store
	held   []both
}

// both has a caller's grants of both stores.
type both struct {
	booking store.Booking
	grants  [2]store.Grant
}

var limits = []store.Limit{
	store.PerSecond(5), store.PerMinute(40), store.TokenBucket(3, time.Second, 7), store.LeakyBucket(10, time.Second),
	store.FixedWindow(9, 5*time.Second), store.Unlimited(), store.PerSecond(1000),
}

func (d *differential) charge() store.Charge {
	i := d.IntN(len(limits))
	c := store.Charge{Budget: store.Budget{Policy: "p", Key: [16]byte{byte(i + 1)}}, Limit: limits[i], Cost: 1 + d.IntN(2)}
	c.Jitter = time.Duration(d.IntN(2)) * 35 * time.Millisecond
	return c
}

func (d *differential) move() {
	switch d.IntN(12) {
	case 0:
		time.Sleep(time.Duration(d.IntN(2000)) * time.Millisecond)
	case 1:
		c, length := d.charge(), time.Duration(d.IntN(3000))*time.Millisecond
		d.each(func(s store.Store) { d.must(s.Pause(d.Context(), c, length)) })
	case 2:
		c := d.charge()
		d.each(func(s store.Store) { d.must(s.Resume(d.Context(), c)) })
	case 3:
		c, q := d.charge(), store.Quota{Left: d.IntN(5), Reset: time.Duration(d.IntN(5)) * time.Second}
		d.each(func(s store.Store) { d.must(s.Reconcile(d.Context(), c, q)) })
	case 4, 5:
		if len(d.held) > 0 {
			i := d.IntN(len(d.held))
			for k, s := range d.stores {
				s.Cancel(&d.held[i].booking, d.held[i].grants[k])
			}
			d.held = append(d.held[:i], d.held[i+1:]...)
		}

	case 6:
		c := d.charge()
		var st [2]store.Status
		for k, s := range d.stores {
			var err error
			st[k], err = s.Status(d.Context(), c)
			d.must(err)
		}

		d.same(st[0], st[1], c.Limit)

	default:
		d.book()
	}
}

func (d *differential) each(do func(store.Store)) {
	for _, s := range d.stores {
		do(s)
	}
}

func (d *differential) book() {
	var b both
	for range 1 + d.IntN(3) {
		b.booking.Charges = append(b.booking.Charges, d.charge())
	}

	b.booking.MaxWait = time.Duration(d.IntN(4)) * time.Second
	for k, s := range d.stores {
		g, err := s.Book(d.Context(), &b.booking)
		d.must(err)
		b.grants[k] = g
	}

	x, y := b.grants[0], b.grants[1]
	x.Handle, y.Handle = store.Handle{}, store.Handle{} // the pair's says which store it is of
	d.same(x, y, b.booking)
	if x.OK {
		d.held = append(d.held, b)
	}
}

func (d *differential) must(err error) {
	d.Helper()
	if err != nil {
		d.Fatalf("seed %d: %v", d.seed, err)
	}
}

func (d *differential) same(first, second, of any) {
	d.Helper()
	if !reflect.DeepEqual(first, second) {
		d.Fatalf("seed %d: %v\nis answered by %+v\n        and by %+v", d.seed, of, first, second)
	}
}
