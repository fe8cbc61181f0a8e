package main

import (
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/redissim"
)

// A failover is what happened when the master of one shard was killed, and a replica took its
// place some time later.
type failover struct {
	Missed  float64       // starts that the upstreams of the shard had less than others, as seconds of their rate
	First   time.Duration // from the take-over to the first start
	Longest time.Duration // wait of a caller
	Worst   int           // starts in a second
	Slots   float64       // questions for the cluster's slots, in a second and for each node, while the master was away
	Rush    float64       // calls to the new master in its first second, for each call a second to the old master
}

// failover plays a failover of the shard of the first upstream: a replica takes over when the master has been away for
// some time. It has no data if lost is true.
func (s scene) failover(b *redissim.Backend, away time.Duration, lost bool) (f failover, err error) {
	const after = 5 * time.Second // from the beginning of the measurement to the master's death
	s.spare = 1
	s.Length = after + away + 15*time.Second
	hitShard := redissim.ShardOf(redissim.SlotOf("{"+name(0)+"}"), s.Shards)
	var killed, taken, rushed []redissim.Load
	s.events = []event{
		{after, func(n *redissim.Network) error {
			killed = n.Loads()
			n.Kill(hitShard)
			return nil
		}},
		{after + away, func(n *redissim.Network) error {
			taken = n.Loads()
			return n.TakeOver(hitShard, lost)
		}},
		{after + away + time.Second, func(n *redissim.Network) error {
			rushed = n.Loads()
			return nil
		}},
	}

	r, err := s.play(b)
	if err != nil {
		return f, err
	}

	// Compare the upstreams of the killed shard with the spared ones, from the master's death to the end.
	f.Worst = r.figures().Worst
	died, back := r.from+after, r.from+after+away
	var hit, spared []float64 // starts in a second

	first := r.to // the first start after the take-over, or the end if there is none
	for u, samples := range r.Samples {
		starts := 0
		for _, one := range samples {
			if one.OK && one.Served >= died && one.Served < r.to {
				starts++
			}
		}

		rate := float64(starts) / (r.to - died).Seconds()
		if redissim.ShardOf(redissim.SlotOf("{"+name(u)+"}"), s.Shards) != hitShard {
			spared = append(spared, rate)
			continue
		}

		hit = append(hit, rate)
		for _, one := range samples {
			if one.Served >= died {
				f.Longest = max(f.Longest, one.Served-one.Asked)
			}
			if one.OK && one.Served >= back {
				first = min(first, one.Served)
			}
		}
	}

	f.First = first - back
	f.Missed = (1 - mean(hit)/mean(spared)) * (r.to - died).Seconds()

	for i := range taken {
		f.Slots += float64(taken[i].Slots-killed[i].Slots) / away.Seconds() / float64(s.Nodes)
	}

	// All nodes call the new master at once: compare the calls of its first second with those of a second before the death.
	before := float64(killed[hitShard].Calls-r.Before[hitShard].Calls) / after.Seconds()
	last := len(rushed) - 1 // the spare server, which took over
	f.Rush = float64(rushed[last].Calls-taken[last].Calls) / before

	return f, nil
}

// mean returns the mean of numbers, or 0 without any.
func mean(all []float64) (sum float64) {
	for _, x := range all {
		sum += x / float64(len(all))
	}
	return sum
}
