package throttle

// ErrSpent is errSpent.
var ErrWaitOver = errWaitOver
