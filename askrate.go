package throttle

import "time"

// A caller asks its store at most mostAsks times in askPeriod. A store that keeps its
// contract hardly ever needs that many, see [Grant.Ready]; any other would have the caller ask
// without a pause, and at a wait of 0 for ever.
const (
	mostAsks  = 8
	askPeriod = 8 * time.Millisecond
)

// An askRate counts how often a caller asked lately. Its zero value is of a caller that has
// not asked yet.
type askRate struct {
	since time.Duration
	asks  int
}

// next notes that the caller asks at a time, and returns how long it must wait before it does.
func (r *askRate) next(at time.Duration) (delay time.Duration) {
	if r.asks == 0 || at-r.since >= askPeriod {
		*r = askRate{since: at}
	}
	if r.asks++; r.asks <= mostAsks {
		return 0
	}
	delay = r.since + askPeriod - at
	*r = askRate{since: r.since + askPeriod, asks: 1}
	return delay
}
