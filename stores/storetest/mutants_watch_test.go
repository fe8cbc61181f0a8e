package storetest

import (
	"context"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// A sloppy watch says and does something else than the honest one.
type sloppy struct {
	*oracleWatch
	confirm func(v *oracleWatch, honest bool) bool
	stop    func(v *oracleWatch)
}

func (w sloppy) Confirm(ctx context.Context, maxWait time.Duration) (bool, error) {
	ok, err := w.oracleWatch.Confirm(ctx, maxWait)
	if w.confirm != nil {
		ok = w.confirm(w.oracleWatch, ok)
	}
	return ok, err
}

func (w sloppy) Stop() {
	if w.stop != nil {
		w.stop(w.oracleWatch)
		return
	}
	w.oracleWatch.Stop()
}

// confirming answers something else.
func confirming(confirm func(v *oracleWatch, honest bool) bool) broken {
	return broken{watch: func(v *oracleWatch) store.Watch { return sloppy{oracleWatch: v, confirm: confirm} }}
}

// stopping ends something else.
func stopping(stop func(v *oracleWatch)) broken {
	return broken{watch: func(v *oracleWatch) store.Watch { return sloppy{oracleWatch: v, stop: stop} }}
}

// overlooking watches over some of the charges only.
func overlooking(sees func(i int, b store.Booking) bool) broken {
	return broken{watch: func(v *oracleWatch) store.Watch {
		all := v.b
		v.b.Charges = nil
		for i, c := range all.Charges {
			if sees(i, all) {
				v.b.Charges = append(v.b.Charges, c)
			}
		}
		return v
	}}
}

// silently does something while nobody is watched over.
func silently(o *oracle, do func()) {
	watched := o.watched
	o.watched = nil
	do()
	o.watched = watched
}

func pauseOf(o *oracle, c store.Charge, d time.Duration) { _ = o.Pause(context.Background(), c, d) }
func resumeOf(o *oracle, c store.Charge)                 { _ = o.Resume(context.Background(), c) }

// unwatched is why a random run need not notice.
const unwatched = "nobody watches there, nor resumes"

// Mutants of watches, and of pauses that are lifted.
var watchMutants = []mutant{
	{"pauses are no news", "P11_WatchHears", unwatched, broken{pause: func(o *oracle, c store.Charge, d, _ time.Duration) {
		silently(o, func() { pauseOf(o, c, d) })
	}}},
	{"confirms always", "P11_WatchHears", unwatched, confirming(func(*oracleWatch, bool) bool { return true })},
	{"confirms never", "P11_WatchUpTo", unwatched, confirming(func(*oracleWatch, bool) bool { return false })},
	{"doubts once", "P11_WatchHears", unwatched, confirming(func(v *oracleWatch, honest bool) bool {
		said := v.at < 0
		if !honest {
			v.at = -1
		}
		return honest || said
	})},
	{"the end is closed", "P11_WatchUpTo", unwatched, confirming(func(v *oracleWatch, honest bool) bool {
		return honest && v.o.ledger.closed[v.b.Charges[0].Budget.Key] != v.at
	})},
	{"the last pause counts", "P11_WatchAnother", unwatched, broken{pause: func(o *oracle, c store.Charge, d, _ time.Duration) {
		delete(o.ledger.closed, c.Budget.Key)
		pauseOf(o, c, d)
	}}},
	{"the first budget only", "P11_WatchOfSeveral", unwatched, overlooking(func(i int, _ store.Booking) bool { return i == 0 })},
	{"the last budget only", "P11_WatchOfSeveral", unwatched, overlooking(func(i int, b store.Booking) bool { return i == len(b.Charges)-1 })},
	{"shadows hold", "P11_WatchPasses", unwatched, broken{watch: func(v *oracleWatch) store.Watch {
		v.b.Charges = slices.Clone(v.b.Charges)
		for i := range v.b.Charges {
			v.b.Charges[i].Shadow = false
		}
		return v
	}}},
	{"shadows do not close", "P11_WatchPasses", unwatched, broken{pause: func(o *oracle, c store.Charge, d, _ time.Duration) {
		if !c.Shadow {
			pauseOf(o, c, d)
		}
	}}},
	{"only what is new", "P11_PauseBetween", unwatched, broken{watch: func(v *oracleWatch) store.Watch {
		old := v.closed()
		return sloppy{oracleWatch: v, confirm: func(_ *oracleWatch, honest bool) bool { return honest || old }}
	}}},
	{"no news at the beginning", "P11_PauseBetween", unwatched, broken{late: true}},
	{"starts that came are not watched", "P11_WatchAfter", unwatched, confirming(func(v *oracleWatch, honest bool) bool {
		return honest || v.at < v.o.clock()
	})},
	{"what is of the node is not watched", "P11_WatchOfANode", unwatched, overlooking(func(i int, b store.Booking) bool { return !b.Charges[i].Node })},
	{"what is of the fleet is not watched", "P11_WatchOfANode", unwatched, overlooking(func(i int, b store.Booking) bool {
		return b.Charges[i].Node || !slices.ContainsFunc(b.Charges, func(c store.Charge) bool { return c.Node })
	})},
	{"what is in flight is not watched", "P11_WatchOfWhat", unwatched, overlooking(func(i int, b store.Booking) bool { return !inFlight(b.Charges[i]) })},
	{"what will be in flight is not watched", "P11_WatchOfAStart", unwatched, overlooking(func(i int, b store.Booking) bool {
		return !inFlight(b.Charges[i]) || len(b.Charges) == 1
	})},
	{"news block", "P11_News", unwatched, broken{pause: func(o *oracle, c store.Charge, d, _ time.Duration) {
		silently(o, func() { pauseOf(o, c, d) })
		for _, v := range o.watched {
			select {
			case v.news <- struct{}{}:
			case <-time.After(time.Minute):
			}
		}
	}}},
	{"stop ends nothing", "P11_WatchEnds", unwatched, stopping(func(*oracleWatch) {})},
	{"stop ends all", "P11_WatchEnds", unwatched, stopping(func(v *oracleWatch) { v.o.watched = nil })},

	{"resume ignored", "P11_ResumeOpens", unwatched, broken{resume: func(*oracle, store.Charge) {}}},
	{"resume of what counts starts only", "P11_ResumeOpensWhat", unwatched, broken{resume: func(o *oracle, c store.Charge) {
		if !inFlight(c) {
			resumeOf(o, c)
		}
	}}},
	{"resume of all", "P11_ResumeOfOne", unwatched, broken{resume: func(o *oracle, c store.Charge) {
		clear(o.ledger.closed)
		resumeOf(o, c)
	}}},
	{"a pause that was lifted comes back", "P11_ResumeThenPause", unwatched, broken{pause: func(o *oracle, c store.Charge, d, _ time.Duration) {
		pauseOf(o, c, max(d, time.Minute))
	}}},
	{"resume is no news", "P11_ResumeLets", unwatched, broken{resume: func(o *oracle, c store.Charge) {
		silently(o, func() { resumeOf(o, c) })
	}}},
	{"resume moves nobody up", "P11_ResumeLets", unwatched, confirming(func(v *oracleWatch, honest bool) bool { return honest || !v.closed() })},
	{"resume moves all up, forever", "P11_ResumeLets", unwatched, broken{resume: func(o *oracle, c store.Charge) {
		resumeOf(o, c)
		for mark := range int64(100) {
			o.lifted[mark] = true
		}
	}}},
	{"resume before the watch is forgotten", "P11_ResumeBetween", unwatched, broken{resume: func(o *oracle, c store.Charge) {
		resumeOf(o, c)
		o.lifted = nil
	}}},
	{"resume of what is open is news", "P11_ResumeOfAnOpen", unwatched, broken{resume: func(o *oracle, c store.Charge) {
		resumeOf(o, c)
		o.news(c, true)
	}}},
	{"resume remembers the start that was to go first", "P11_UnlimitedIsResumed", unwatched, broken{resume: func(o *oracle, c store.Charge) {
		stays := o.ledger.stays[c.Budget.Key]
		resumeOf(o, c)
		o.ledger.stays[c.Budget.Key] = stays
	}}},
	{"resume of what has a number only", "P11_UnlimitedIsResumed", unwatched, broken{resume: func(o *oracle, c store.Charge) {
		if !isOpen(c) {
			resumeOf(o, c)
		}
	}}},
	{"what is unlimited is not watched", "P11_UnlimitedTells", unwatched, overlooking(func(i int, b store.Booking) bool { return !isOpen(b.Charges[i]) })},
	{"resume of the fleet only", "P11_ResumeOfANode", unwatched, broken{resume: func(o *oracle, c store.Charge) {
		if !c.Node {
			resumeOf(o, c)
		}
	}}},
}
