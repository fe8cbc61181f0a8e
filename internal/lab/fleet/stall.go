package fleet

import "time"

// A Stall is a time in which the machine did not let this program run. Its ends
// count from the Unix epoch.
type Stall struct{ From, To time.Duration }

// Length returns how long it was.
func (s Stall) Length() time.Duration { return s.To - s.From }

// WatchStalls notes each sleep of a millisecond that comes back too late by
// more than least, until stop is called, which waits for the last note.
func WatchStalls(least time.Duration, note func(Stall)) (stop func()) {
	const nap = time.Millisecond
	told, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			begin := Now()
			select {
			case <-told:
				return
			case <-time.After(nap):
				if s := (Stall{begin + nap, Now()}); s.Length() > least {
					note(s)
				}
			}
		}
	}()

	return func() { close(told); <-done }
}
