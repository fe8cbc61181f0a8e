package throttle

import (
	"errors"
	"fmt"
	"time"
)

// What a limit can be made of. A store counts in microseconds, keeps a budget
// as long as its window, and adds costs up in numbers that Lua holds exactly.
const (
	maxStarts = 1 << 40
	maxBurst  = 1 << 32
	minPeriod = time.Microsecond
	maxPeriod = 366 * 24 * time.Hour
)

// validate reports everything that keeps l from being counted, for starts that
// may arrive up to jitter after their grant.
func (l Limit) validate(jitter time.Duration) error {
	if l.kind == 0 {
		return errors.New(`there is no limit: set one such as PerSecond(20), or read one with ParseLimit("20/s")`)
	}
	if l.kind == KindUnlimited {
		return nil
	}
	return errors.Join(l.validateStarts(), l.validatePeriod(jitter), l.validateBucket())
}

func (l Limit) validateStarts() error {
	switch {
	case l.n < 1:
		return fmt.Errorf("%d starts: allow at least 1", l.n)
	case int64(l.n) > maxStarts:
		return fmt.Errorf("%d starts: allow at most %d", l.n, int64(maxStarts))
	}
	return nil
}

func (l Limit) validatePeriod(jitter time.Duration) error {
	switch {
	case l.kind == KindConcurrency:
		return nil
	case l.loc != nil:
		if !l.unit.known() {
			return fmt.Errorf("%s: use Day, Week or Month", l.unit.text())
		}
		return nil
	case l.per <= 0:
		return fmt.Errorf("a period of %v: use a positive one, such as time.Second", l.per)
	case l.per > maxPeriod:
		return fmt.Errorf("a period of %v: use at most %v, which is 366 days", l.per, maxPeriod)
	case l.kind == KindFixedWindow:
		return errors.Join(l.validateMicros(), l.validateRoom(jitter))
	case l.per < minPeriod:
		return fmt.Errorf("a period of %v: use at least %v", l.per, minPeriod)
	}
	return nil
}

// validateMicros keeps the edges of fixed windows at whole microseconds, where
// every store finds them.
func (l Limit) validateMicros() error {
	if l.per%time.Microsecond != 0 {
		return fmt.Errorf("a fixed window of %v: use whole microseconds", l.per)
	}
	return nil
}

// validateRoom refuses a window that has no moment for a start, because each
// could arrive after the window's end.
func (l Limit) validateRoom(jitter time.Duration) error {
	if l.per <= jitter {
		return fmt.Errorf("a fixed window of %v has no room for a start that may arrive %v late: "+
			"use a longer window, or set Policy.Jitter to less than the window (negative for none)", l.per, jitter)
	}
	return nil
}

// validateBucket refuses a bucket that no store can count: a token takes at
// least a microsecond, the whole bucket at most the longest period.
func (l Limit) validateBucket() error {
	switch {
	case l.kind != KindTokenBucket || l.n < 1 || l.per < minPeriod:
		return nil
	case l.burst < 1:
		return fmt.Errorf("a burst of %d: allow at least 1", l.burst)
	case int64(l.burst) > maxBurst:
		return fmt.Errorf("a burst of %d: allow at most %d", l.burst, int64(maxBurst))
	case int64(l.n) > int64(l.per/time.Microsecond):
		return fmt.Errorf("%d tokens in %v: a bucket takes at most one each microsecond", l.n, l.per)
	case float64(l.burst)*float64(l.per)/float64(l.n) > float64(maxPeriod):
		return fmt.Errorf("a burst of %d that takes more than %v to fill: use a smaller one", l.burst, maxPeriod)
	}
	return nil
}
