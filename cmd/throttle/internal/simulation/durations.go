package simulation

import (
	"math"
	"math/bits"
	"time"
)

// steps is into how many parts each power of two is cut: a quantile is too large by less than
// a hundredth.
const steps = 128

// Durations are how long many things took, in memory that does not grow with their number.
type Durations struct {
	N     int
	Sum   time.Duration
	Max   time.Duration
	parts map[int]int // by part, how many
}

// Add adds one.
func (d *Durations) Add(one time.Duration) {
	if d.parts == nil {
		d.parts = make(map[int]int)
	}
	d.N++
	d.Sum += one
	d.Max = max(d.Max, one)
	d.parts[part(one)]++
}

// Positive returns how many took any time.
func (d *Durations) Positive() int { return d.N - d.parts[0] }

// part returns the part of a length of time: microseconds one by one, and from 128 on in
// steps.
func part(d time.Duration) int {
	us := uint64((d + time.Microsecond - 1) / time.Microsecond)
	if us < steps {
		return int(us)
	}
	shift := bits.Len64(us) - bits.Len64(steps)
	return (shift+1)*steps + int(us>>shift) - steps
}

// upper is the longest of a part.
func upper(p int) time.Duration {
	if p < steps {
		return time.Duration(p) * time.Microsecond
	}
	shift := p/steps - 1
	return time.Duration((uint64(p%steps+steps+1)<<shift)-1) * time.Microsecond
}

// Quantile returns how long a share q of them took at the most, 0 if there are none.
func (d *Durations) Quantile(q float64) time.Duration {
	rank := int(math.Ceil(q * float64(d.N)))
	highest := part(d.Max)
	for p, seen := 0, 0; p <= highest && len(d.parts) > 0; p++ {
		seen += d.parts[p]
		if seen >= max(1, rank) {
			return min(upper(p), d.Max)
		}
	}
	return d.Max
}
