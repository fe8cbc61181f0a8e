package store

// LimitForms is what ParseLimit says it understands.
const LimitForms = limitForms

// The bounds of a limit's numbers.
const (
	MaxStarts int64 = maxStarts
	MaxBurst  int64 = maxBurst
	MinPeriod       = minPeriod
)
