package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/fleetthrottle/throttle/internal/stat"
)

// pictures are the figures worth a picture, by file name.
func pictures(r results) map[string]picture {
	return map[string]picture{
		"acquires": {
			title: "Starts per second through one Redis, one key, 4 processes × 64 workers",
			note:  "A limit that does not bind: what an acquire costs. Higher is better.",
			charts: []chart{{bars: r.bars("Shared/1-key/4x64", func(name string) (bar, bool) {
				v, ok := r.value(name, "acquires/s")
				times, _ := r.value(name, "times-redis_rate")
				return bar{value: v, text: fmt.Sprintf("%s (%.2f × redis_rate)", thousands(v), times)}, ok
			})}},
		},
		"fleet": {
			title:  "The most starts in any second, 64 waiters in 4 processes",
			note:   "The line is the limit. Red is above it even in 0.95 s. In brackets: how much of it was used.",
			charts: []chart{r.worst(40), r.worst(1000)},
		},
		"upstream": {
			title: "What an upstream answers that bans for 5 s at the 41st request in a second",
			note:  "Requests are up to 30 ms on their way. The share of its 40 per second. Higher is better.",
			charts: []chart{{most: 100, bars: r.bars("Upstream", func(name string) (bar, bool) {
				v, ok := r.value(name, "useful-%")
				bans, _ := r.value(name, "bans")
				return bar{value: v, text: fmt.Sprintf("%.0f %% (%s)", v, stat.Count(int(bans), "ban", "bans")), bad: bans > 0}, ok
			})}},
		},
		"memory": {
			title:  "Bytes in Redis of one budget",
			note:   "Each step to the right is ten times as much. Lower is better.",
			charts: []chart{r.memory("100-per-1s"), r.memory("100000-per-1h0m0s")},
		},
	}
}

// spaces writes a contender's name in words. One library is written like this.
var spaces = strings.NewReplacer("redis_rate", "redis_rate", "_", " ", "-", ", ")

// bars are one for each contender, ours first and then the largest.
func (r results) bars(name string, of func(name string) (bar, bool)) []bar {
	var all []bar
	for _, contender := range r.below(name) {
		if b, ok := of(name + "/" + contender); ok {
			b.name = spaces.Replace(contender)
			b.ours = strings.HasPrefix(contender, "throttle") && contender != "throttled"
			all = append(all, b)
		}
	}

	slices.SortStableFunc(all, func(a, b bar) int {
		if a.ours != b.ours {
			if a.ours {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.value, a.value)
	})

	return all
}

// worst is the column that says whether a limit is kept. Where the limiter tells
// its starts by the store's clock, that is what counts; a caller that wakes late
// would be counted wrongly.
func (r results) worst(quota int) chart {
	name := fmt.Sprintf("Fleet/%d-per-s", quota)
	return chart{
		title: fmt.Sprintf("%d a second", quota),
		line:  float64(quota),
		bars: r.bars(name, func(name string) (bar, bool) {
			v, ok := r.value(name, "most-by-store/s")
			surely, _ := r.value(name, "most/0.95s")
			used, _ := r.value(name, "used-%")

			return bar{
				value: v, bad: v > float64(quota) && surely > float64(quota),
				text: fmt.Sprintf("%s (%.0f %%)", thousands(v), used),
			}, ok
		}),
	}
}

// memory is on a scale of powers of ten: a linear scale cannot show both 88 and ten million.
func (r results) memory(limit string) chart {
	n, per, _ := strings.Cut(limit, "-per-")
	number, _ := strconv.ParseFloat(n, 64)
	return chart{
		title: fmt.Sprintf("%s in %s", thousands(number), strings.TrimSuffix(per, "0m0s")),
		log:   true, most: 1e8,
		bars: r.bars("Memory/"+limit, func(name string) (bar, bool) {
			v, ok := r.value(name, "bytes")
			return bar{value: v, text: thousands(v)}, ok
		}),
	}
}

// thousands writes a number, rounded, with commas.
func thousands(v float64) string { return stat.Thousands(int(math.Round(v))) }
