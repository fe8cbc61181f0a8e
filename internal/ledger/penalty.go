package ledger

import "time"

const (
	// LeastProbe and longestProbe bound for how long one start is alone after a
	// penalty, in microseconds: its answer may say that there is another.
	LeastProbe   = 250_000
	longestProbe = 5_000_000

	// longestGrown is the most that a penalty grows to because it was met again.
	longestGrown = int64(time.Hour / time.Microsecond)

	// longestStep is the longest step of a slow start.
	longestStep = int64(20 * time.Second / time.Microsecond)
)

// step is the longest step of the slow start after the penalty.
func (p *penalty) step() int64 { return min(p.length/2, longestStep) }

// forgotten is when a refusal has nothing to do with the last penalty any more.
func (r *Row) forgotten() int64 { return r.paused + max(r.last.step(), r.last.probe) }

// shut closes the row for so long, because a request was refused that was sent so long
// ago; 0: none was. A request that was sent after the last penalty met that again, or in
// the last half of it, because clocks drift; one that was sent before belongs to it, and its
// answer came late. Its answer took so long; the store may have been away since. It reports
// whether the row is closed for longer than before.
func (r *Row) shut(length, refused, took int64) bool {
	now, old := r.seen, r.paused
	if now >= r.forgotten() {
		r.last = penalty{}
	}
	p := penalty{length: length, times: min(refused, 1)}
	late := refused > 0 && now-refused < old-r.last.length/2
	if refused > 0 && r.last.times > 0 && now >= old && !late {
		p.length, p.times = max(length, min(2*r.last.length, grown(length))), r.last.times+1
	}
	p.probe = max(LeastProbe, min(2*took, longestProbe, p.length))
	r.paused = max(old, now+p.length)
	if late || now < old {
		p.length, p.probe, p.times = max(p.length, r.last.length), max(p.probe, r.last.probe), max(p.times, r.last.times)
	}
	r.last = p
	return r.paused > old
}

// grown is the most that a penalty of such a length grows to: as many times as long as it
// has whole seconds.
func grown(length int64) int64 {
	length = min(length, longestGrown)
	return min(length*(length/Micros(time.Second)), longestGrown)
}

// repeated is how often the last penalty was met again, while that is not forgotten.
func (r *Row) repeated(now int64) int {
	if now >= r.forgotten() {
		return 0
	}
	return int(max(0, r.last.times-1))
}
