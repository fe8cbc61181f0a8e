// Package waits measures how long callers wait when the world changes while a
// queue is deep: waiters leave, others are more urgent, limits are raised, bans
// come and go, estimates are wrong, processes die, Redis is late.
//
// It knows only the public names of throttle. The engine is measured from
// outside, and most figures are compared with a perfect queue over the same
// arrivals: see perfect.go. Scenarios on memstore run in virtual time and give the
// same figures on every machine, except for the order of goroutines. Scenarios on
// Redis, and those with -long, are for a quiet machine.
//
//	go test ./internal/lab/waits                        # all of it, in small
//	go test ./internal/lab/waits -long -timeout 40m     # all of it; not with -race
//	go test ./internal/lab/waits -run TestWaits/bans    # one scenario
//	go test ./internal/lab/waits -judge=false -out FILE # measure, and fail for nothing
//
// What must be reached is in targets.go.
package waits
