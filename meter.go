package throttle

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"

	"github.com/fleetthrottle/throttle/internal/acquire"
	"github.com/fleetthrottle/throttle/internal/peek"
	"github.com/fleetthrottle/throttle/store"
)

// meterBody has the meters of the policies read along while the caller reads a response's
// body: it replaces resp.Body by a meteredBody, unless no policy has a meter for this body, or
// the body has an unknown coding. A policy whose cost is in costs, because the response itself
// stated it, needs no meter.
func (r *roundTrip) meterBody(resp *http.Response, costs []int) {
	if resp.Body == nil || resp.Body == http.NoBody || resp.StatusCode == http.StatusSwitchingProtocols {
		return
	}

	// Each policy under which the cost can still change is asked for a meter.
	var meters []policyMeter
	for i, p := range r.quote.policies {
		c := &r.Booking.Charges[i]
		if p.Meter == nil || !r.settles(c) || costs != nil && costs[i] >= 0 {
			continue
		}

		switch m, err := p.meter(resp); {
		case err != nil:
			r.functionFailed(r.req.Context(), p, err)
		case m != nil:
			meters = append(meters, policyMeter{Meter: m, policy: p, charge: i})
		}
	}

	if meters == nil {
		return
	}

	// A body in an unknown coding cannot be metered: the observer is told of each policy that has a meter.
	coding, known := peek.Coding(resp)
	if !known {
		for i := range meters {
			r.reportCoding(meters[i].policy, &r.Booking.Charges[meters[i].charge], coding)
		}
		return
	}

	r.toBeTold = true
	resp.Body = &meteredBody{ReadCloser: resp.Body, r: r, coding: coding, meters: meters}
}

// A policyMeter is the meter of one policy for one body.
type policyMeter struct {
	Meter
	policy *compiledPolicy
	charge int   // index among the booked charges
	err    error // a panic of the meter; it is not asked any more then
	full   bool  // the meter has seen enough
}

// write gives the meter a piece of the body's text.
func (m *policyMeter) write(p []byte) {
	if m.full || m.err != nil {
		return
	}
	defer recoverAs(&m.err, m.policy.Name, "Meter")
	_, err := m.Write(p)
	m.full = err != nil
}

// cost returns the cost that the meter states, or asBooked if the meter has panicked or panics.
func (m *policyMeter) cost() (cost int) {
	if m.err != nil {
		return asBooked
	}

	// After a panic of Cost the result is still asBooked: recoverAs sets the error alone.
	cost = asBooked
	defer recoverAs(&m.err, m.policy.Name, "Meter")
	return m.Cost()
}

// A meteredBody is a response's body along which meters read.
type meteredBody struct {
	io.ReadCloser
	r      *roundTrip
	coding string // of the body, or ""

	mu      sync.Mutex // a body may be closed while it is read
	meters  []policyMeter
	writing bool   // the meters see a piece of the body, without the mutex: they are the program's own
	coded   []byte // the part of the body that was read, if it has a coding
	long    bool   // the body is longer than maxCoded, and not kept
	over    bool   // the body was read to its end or closed, or a read failed
}

// maxCoded bounds the kept part of a body that has a coding, and maxDecoded the decoded text. Such
// a body is decoded in one step when it is over, so that no goroutine waits for a caller that
// forgets the body.
const (
	maxCoded   = 1 << 20
	maxDecoded = 16 << 20
)

// Read implements [io.Reader].
func (b *meteredBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if 0 < n && n <= len(p) { // a broken body may return an impossible count
		b.pass(p[:n])
	}
	if err != nil {
		b.end()
	}
	return n, err
}

// Close implements [io.Closer].
func (b *meteredBody) Close() error {
	err := b.ReadCloser.Close()
	b.end()
	return err
}

// pass shows the meters a piece of the body, or keeps the piece if the body has a coding.
func (b *meteredBody) pass(p []byte) {
	seenAtOnce := b.beginWrite(p)
	if seenAtOnce {
		b.write(p)
		b.endWrite()
	}
}

// beginWrite returns true if the meters see p, a piece of the body, at once: the caller must call write, and then endWrite. It
// returns false if the body was closed, or has a coding. A piece of a coded body is kept until the body is over, unless the body
// is too long.
func (b *meteredBody) beginWrite(p []byte) (seenAtOnce bool) {
	b.mu.Lock()
	defer b.mu.Unlock()

	switch {
	case b.over: // the costs are settled

	case b.coding == "":
		b.writing = true
		return true

	// A body that is too long is not kept at all: a part of it cannot be decoded.
	case b.long || len(b.coded)+len(p) > maxCoded:
		b.long, b.coded = true, nil

	default:
		b.coded = append(b.coded, p...)
	}

	return false
}

// endWrite notes that the meters have seen a piece, and settles the costs of a body that was closed meanwhile.
func (b *meteredBody) endWrite() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.writing = false
	if b.over {
		b.settleInBackground()
	}
}

// settleInBackground has the costs settled in the background. Bookings in the meters' budgets wait for
// the settlement, each for at most ReportTime of its caller, unless too many reports are under way. The
// caller holds b.mu.
func (b *meteredBody) settleInBackground() {
	budgets := make([]store.Budget, len(b.meters))
	for i := range b.meters {
		budgets[i] = b.r.Booking.Charges[b.meters[i].charge].Budget
	}

	// If too many reports are under way, the settlement gets a goroutine of its own, and no booking waits for it.
	accepted := b.r.callers.ReportInBackground(b.settle, budgets)
	if !accepted {
		go b.settle()
	}
}

// write gives the meters a piece of the body's text.
func (b *meteredBody) write(p []byte) {
	for i := range b.meters {
		b.meters[i].write(p)
	}
}

// end notes that the body is over, and has the costs settled in the background, unless it was called
// before. So the caller waits neither for the store nor for the meters. If the meters see a piece just
// then, endWrite has the costs settled.
func (b *meteredBody) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := !b.over
	b.over = true
	if first && !b.writing {
		b.settleInBackground()
	}
}

// settle asks the meters for the costs, and tells the store.
func (b *meteredBody) settle() {
	ctx, cancel := b.r.reportContext(acquire.ReportWait)
	defer cancel()
	b.r.settleCosts(ctx, b.costs(ctx))
}

// costs asks each meter for its cost, and returns a cost for each charge: asBooked where no meter
// states one. It returns nil if no meter states a cost. It tells the observer of meters that
// panicked. It needs no mutex: the body is over, so no meter sees a piece any more.
func (b *meteredBody) costs(ctx context.Context) (costs []int) {
	// The meters have seen nothing of a coded body yet.
	if b.coded != nil {
		b.decode()
	}

	for i := range b.meters {
		m := &b.meters[i]
		costs = b.r.withCost(costs, m.charge, m.cost()) // cost also sets m.err if the meter panics
		if m.err != nil {
			b.r.functionFailed(ctx, m.policy, m.err)
		}
	}
	return costs
}

// decode gives the meters the text of a body that has a coding, as far as the body was read, and at most
// maxDecoded bytes of text.
func (b *meteredBody) decode() {
	text, err := peek.Decoded(b.coding, bytes.NewReader(b.coded))
	b.coded = nil

	// An error is the end of the text: the body may have been closed early.
	piece := make([]byte, 32<<10)
	for left := maxDecoded; err == nil && left > 0; {
		var n int
		n, err = text.Read(piece[:min(left, len(piece))])
		b.write(piece[:n])
		left -= n
	}
}
