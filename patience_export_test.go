package throttle

// ErrSpent is errSpent.
var ErrSpent = errSpent
