// Package bubble has what tests in a bubble of package synctest need beside it.
package bubble

import "time"

// After returns a channel that is closed in d, and what stops that. It is for tests in place
// of [time.After] and [time.NewTimer]: a timer of a bubble that runs in a goroutine which finds
// it over breaks the race detector (go.dev/issue/78156). A goroutine finds it over when the
// goroutine receives from its channel, which a timer of [time.AfterFunc] has not, or starts it
// with no time to go.
func After(d time.Duration) (over <-chan struct{}, stop func() bool) {
	c := make(chan struct{})
	if d <= 0 {
		close(c)
		return c, func() bool { return false }
	}
	return c, time.AfterFunc(d, func() { close(c) }).Stop
}
