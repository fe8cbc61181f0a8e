package rowstore

import (
	"fmt"
	"time"
)

// A ClockError says that the clock of this node is more than a minute behind the latest time that a node
// of the group has seen: one of the two is wrong. Nothing is booked, because either time may be the right one. See
// Options.ManyClocks.
type ClockError struct {
	Behind time.Duration // how far behind the latest known time
}

// Error implements error.
func (e *ClockError) Error() string {
	return fmt.Sprintf("the clock is %v behind that of another program, or of another server of the database: set the clocks by NTP", e.Behind.Round(time.Millisecond))
}

// maxBehind is by how many microseconds a clock may be behind the latest time that a node has seen.
const maxBehind = 60_000_000

// latest returns the time of a transaction in microseconds: the later one of now and seen. now is the time of the transaction's clock.
// seen is the latest time that any node has seen, or 0 if there is one clock. If now is more than maxBehind earlier than seen,
// the error is a *[ClockError].
func latest(now time.Time, seen int64) (int64, error) {
	t := now.UnixMicro()
	if behind := seen - t; behind > maxBehind {
		return 0, &ClockError{time.Duration(behind) * time.Microsecond}
	}
	return max(t, seen), nil
}
