package throttle

import "time"

// Validate is the check that New makes of a limit.
func (l Limit) Validate(jitter time.Duration) error { return l.validate(jitter) }
