package wire

import "time"

// AppointScript makes appointments.
var AppointScript = made(source("frame", "appoint"))

// MostTicket is the largest number of a ticket, of a line or of a share.
const MostTicket = 1<<53 - 1

// An AppointRequest asks when a caller should come again that leaves with its place.
type AppointRequest struct {
	Key    string        // of the appointments
	Wait   time.Duration // how long the caller would wait
	Length time.Duration // how long the limit takes for what it costs
	Again  bool          // it came back and leaves once more
}

// Call implements [Request].
func (q AppointRequest) Call(Boundaries) Call {
	return Call{AppointScript, []string{q.Key}, Frame(nil).Add(Micros(q.Wait), Micros(q.Length), flag(q.Again)), nil}
}

// Read implements [Request].
func (q AppointRequest) Read(f Frame) (in time.Duration, err error) {
	r := &reader{rest: f}
	_ = r.next() // the time
	in = Wait(r.next())
	r.check(in >= 0)
	return in, r.end()
}
