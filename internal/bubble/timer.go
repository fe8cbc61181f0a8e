// Package bubble has what tests in a bubble of package synctest need beside it.
package bubble

import "time"

// After returns a channel that is closed in d, and what stops that. It is for tests in place
// of [time.After] and [time.NewTimer]: goroutines of a bubble that receive at once from timers
// that are over break the race detector (go.dev/issue/78156). Timers of [time.AfterFunc] have
// no channel.
func After(d time.Duration) (over <-chan struct{}, stop func() bool) {
	c := make(chan struct{})
	return c, time.AfterFunc(d, func() { close(c) }).Stop
}
