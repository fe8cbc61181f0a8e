package throttle

import "time"

// now is the time since the process began. It costs half as much as time.Now,
// which reads the wall clock too.
func now() time.Duration { return time.Since(born) }

// born is when the process began.
var born = time.Now()
