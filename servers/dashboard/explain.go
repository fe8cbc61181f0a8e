package dashboard

import (
	"strings"
	"time"
)

// opening is for how long after its end a penalty explains why a budget has little room: the slow start is
// over by then for most limits.
const opening = time.Minute

// explain sets why requests wait for each budget of a reading that holds some.
func explain(r *reading) {
	at := r.At.UnixMilli()
	for i := range r.Budgets {
		b := &r.Budgets[i]
		m := b.moment()
		m.Used, m.Booked, m.Waiting, m.Wait = b.Used, b.Booked, b.Callers, millis(b.Wait)
		m.Left, m.Err = millis(max(0, b.Until-at)), b.Err
		m.setBand(b.Bands, at)
		if b.Why = nil; b.Err == "" && (m.Left > 0 || m.Waiting > 0 || m.Shadow) {
			sentence := m.reason()
			b.Why = &sentence
		}
	}
}

// moment returns what is true of a budget at any moment.
func (b *budget) moment() moment {
	return moment{
		Limit: strings.Join(b.Limits, " or "), Kind: b.Kind, Capacity: b.Capacity,
		Closer: b.Closer, By: b.By, Reason: b.Reason, Repeated: b.Repeated, Ceiling: b.Ceiling, Shadow: b.Shadow,
	}
}

// setBand sets who closed the budget, or how long ago it opened.
func (m *moment) setBand(all []band, at int64) {
	for i := range all {
		switch b := &all[i]; {
		case b.From <= at && at < b.Until:
			m.Closer, m.By, m.Reason = b.Closer, b.By, b.Reason
		case b.Until <= at && millis(at-b.Until) < opening:
			m.Opened = max(time.Millisecond, millis(at-b.Until))
		}
	}
}

// millis returns a number of milliseconds as a length of time.
func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
