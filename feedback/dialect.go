package feedback

import (
	"net/http"
	"time"
)

// A Dialect reads for how long, or until when, from a text. The answer was sent
// at that time; ok is false if the text does not say, or names the past.
type Dialect func(text string, sent time.Time) (d time.Duration, ok bool)

// After returns the dialect of plain numbers of a unit: with [time.Millisecond],
// "250" and "250.5".
func After(unit time.Duration) Dialect {
	return nil
}

// At returns the dialect of moments in a layout of [time.Parse] and, unless they
// tell, in a zone. A second is added for what may be cut off.
func At(layout string, zone *time.Location) Dialect {
	return nil
}

// RetryAfter returns a penalty that obeys the field Retry-After whatever the
// status, and is the fallback if the field does not say how long. It reads all
// that [Headers] reads in a Reset. "0" is a legal value that means now: the
// penalty is 0, and the policy's own limit alone paces what follows.
//
// It belongs in a [When]: with 3xx the field says when to follow, and with 202
// when to ask again.
func RetryAfter(fallback time.Duration) Penalty {
	return For(0)
}

// UntilMidnight returns a penalty that ends with the day in a zone.
func UntilMidnight(zone *time.Location) Penalty {
	return func(resp *http.Response) time.Duration { return 0 }
}

// UntilFirst returns a penalty that ends with the month in a zone.
func UntilFirst(zone *time.Location) Penalty {
	return func(resp *http.Response) time.Duration { return 0 }
}
