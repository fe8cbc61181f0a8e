package redisstore

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/history"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// An outcome is what a call says of one caller.
type outcome struct {
	wire.Outcome
	wait   int64     // until At, in microseconds
	paused int64     // for how long the charge that kept it is closed, in microseconds
	since  time.Time // wait counts from then at the earliest; zero: since the call was sent
}

// call makes the call of a batch once.
func (s above) call(b *batch) ([]outcome, error) {
	var call *wire.BookCall
	sent, again := time.Now(), false
	f, err := s.conn.Call(context.Background(), func(e wire.Boundaries, shut []wire.Gate) wire.Call {
		s.hearShut(shut)
		s.sort(b, again, shut)
		again = true
		call = s.request(b).Write(e, budgets{s.Store})
		return call.Call
	})
	if err != nil {
		return nil, err
	}
	reply, err := call.Read(f)
	if err != nil {
		return nil, err
	}
	return s.observe(b, &reply, sent, time.Now()), nil
}

// request is the call of a batch.
func (s above) request(b *batch) *wire.BookRequest {
	group := b.callers[0].Charges[0].Budget.Group
	r := &wire.BookRequest{
		Record: s.recordKey(group), Number: b.number, Age: time.Since(b.sent), Rows: b.rows,
		Ops: make([]wire.Op, 0, len(b.runs)), Pauses: s.knownPauses(b.callers),
		Shared: s.sharedChannel(group), Node: s.id, Own: s.ownPrefix(group),
	}
	for _, run := range b.runs {
		c := b.callers[run.from]
		o := c.Op
		o.Callers, o.MaxWait = run.to-run.from, run.maxWait
		if c.turn != nil {
			o.Tickets = c.turn.tickets
		}
		r.Ops = append(r.Ops, o)
	}
	for _, f := range b.flights {
		r.Reports = append(r.Reports, s.flights.report(f))
	}
	return r
}

// observe takes in a reply to a batch, and returns an outcome for each caller.
func (s above) observe(b *batch, p *wire.BookReply, sent, received time.Time) []outcome {
	group := b.callers[0].Charges[0].Budget.Group
	at, since := p.Now, time.Time{}
	last := history.Reply{Group: group, Number: b.number, Sent: b.sent, ServerTime: p.Now, By: received}
	if p.DecidedAt != 0 { // by a copy that was made so much later than the first
		last.Sent, last.ServerTime, last.By = b.sent.Add(min(p.CopyAge, received.Sub(b.sent))), p.DecidedAt, time.Time{}
		at, since = history.DecidedAt(last.Sent, received, p.DecidedAt, p.Now)
	} else {
		s.offsets.Observe(group, p.Now, sent, received)
	}
	b.reports = p.Reports
	all := make([]outcome, len(p.Outcomes))
	for _, r := range b.runs {
		for i := r.from; i < r.to; i++ {
			o := p.Outcomes[i]
			all[i] = outcome{o, o.At - at, max(0, o.PausedUntil-at), since}
			if i == r.from || o.At != all[i-1].At {
				s.noteHeld(b.callers[i].Charges, &all[i], received)
			}
		}
	}
	for i := range p.Budgets {
		r := &p.Budgets[i]
		if s.history.Observe(r.Key, observation(r, last, at, received), received) {
			s.announceLoss(group, r.Key)
		}
		s.queues.answered(s.Store, r.Key, lineNews{r.Line.ID, r.Line.Waiting, r.Line.Hurry, r.Line.Cuts, r.Line.Joined, r.Line.First, r.Line.Last})
	}
	return all
}

// keep is for how long starts matter to a charge.
func keep(c *throttle.Charge) time.Duration {
	if c.Limit.Kind() != throttle.KindFixedWindow {
		return c.Span()
	}
	// Two windows, because the next one may be longer.
	start, end := c.Limit.Window(time.Now())
	_, end = c.Limit.Window(end)
	return end.Sub(start)
}

// grant is the outcome as callers know it. Shadow charges are told how much
// later they would have started.
func (o *outcome) grant(charges []throttle.Charge, age time.Duration) throttle.Grant {
	wait := wire.Wait(o.wait)
	for i := range charges {
		c := &charges[i]
		c.Over = 0
		switch {
		case wire.Holds(c) && o.State == wire.Booked:
			wait = max(wait, time.Microsecond) // only callers that need not wait hold
		case o.Delays != nil:
			c.Over = wire.Wait(o.Delays[i])
		}
	}
	if !o.since.IsZero() {
		age = max(age, time.Since(o.since))
	}
	if o.Booked() && o.wait < 0 {
		age += time.Duration(-o.wait) * time.Microsecond // decided when the call was made for the first time
	}
	return throttle.Grant{OK: o.Booked(), Wait: wait, Age: age, Mark: o.Mark(), Held: o.Charge, Paused: o.paused > 0}
}
