package storetest

import (
	"time"

	"github.com/fleetthrottle/throttle"
)

// bucketChecks are about buckets of tokens: a burst at once, and then no more
// than flows in.
var bucketChecks = []check{
	{"P1_BucketBurstAndRate", func(b *bench) {
		three := charge("three", throttle.TokenBucket(1, sec, 3))
		b.starts(3, 0, three)
		b.start(sec, three)
		b.start(2*sec, three)
		b.at(3*sec - tick)
		b.refused(3*sec, three)
		b.at(3 * sec)
		b.start(3*sec, three)
		b.refused(4*sec, three)
	}},

	{"P1_BucketFillsNoHigher", func(b *bench) {
		three := charge("three", throttle.TokenBucket(2, sec, 3))
		b.at(100 * sec)
		b.starts(3, 100*sec, three)
		b.start(100500*ms, three)
		b.at(200 * sec)
		b.starts(3, 200*sec, three)
		b.refused(200500*ms, three)
	}},

	{"P1_BucketPartsOfATokenAreKept", func(b *bench) {
		three := charge("three", throttle.TokenBucket(1, sec, 3))
		b.starts(3, 0, three)
		b.at(1500 * ms)
		b.start(1500*ms, three)
		b.start(2*sec, three) // half a token was left
		b.start(3*sec, three)
	}},

	{"P1_BucketCosts", func(b *bench) {
		ten := charge("ten", throttle.TokenBucket(2, sec, 10))
		b.start(0, costing(ten, 7))
		b.start(sec, costing(ten, 5))
		b.start(2500*ms, costing(ten, 3)) // what was left at 0 is promised to the one before
		b.start(3*sec, ten)
		b.start(8*sec, costing(ten, 10))
	}},

	{"P1_BucketBeforeALaterStart", func(b *bench) {
		two := charge("two", throttle.TokenBucket(1, sec, 2))
		b.later(10*sec, costing(two, 2))
		b.starts(2, 0, two)
		for i := range 8 {
			b.start(time.Duration(i+1)*sec, two)
		}
		b.start(11*sec, two) // the bucket must be full at 10 s
	}},

	{"P1_BucketShortlyBeforeALaterStart", func(b *bench) {
		two := charge("two", throttle.TokenBucket(1, sec, 2))
		b.later(900*ms, costing(two, 2))
		b.start(1900*ms, two) // not even one fits before, though the bucket is full
		b.at(100 * ms)
		b.start(2900*ms, two)
	}},

	{"P1_BucketRoundsUp", func(b *bench) {
		two := charge("two", throttle.TokenBucket(3, sec, 2))
		b.starts(2, 0, two)
		b.start(333334*tick, two)
		b.start(666667*tick, two) // the parts of a microsecond do not add up
		b.start(sec, two)
	}},

	{"P1_BucketOfOne", func(b *bench) {
		one := charge("one", throttle.TokenBucket(3, sec, 1))
		b.start(0, one)
		b.start(333334*tick, one)
		b.start(666668*tick, one) // each two of them must be far enough apart
	}},

	{"P1_BucketSlow", func(b *bench) {
		c := charge("slow", throttle.TokenBucket(1, time.Minute, 20))
		b.starts(20, 0, c)
		b.start(time.Minute, c)
		b.start(2*time.Minute, c)
		b.at(time.Hour)
		b.starts(20, time.Hour, c)
		b.start(61*time.Minute, c)
	}},

	{"P1_BucketRemembersItsBurst", func(b *bench) {
		five := charge("five", throttle.TokenBucket(1, sec, 5))
		b.starts(5, 0, five)
		for i := range 300 {
			now := time.Duration(i+1) * sec
			b.at(now)
			b.start(now, five)
			b.refused(now+sec, five) // nothing is saved up under load, however long it lasts
		}
		b.at(302 * sec)
		b.starts(2, 302*sec, five)
		b.start(303*sec, five)
	}},

	{"P2_BucketRemembersItsBurstAndJitter", func(b *bench) {
		five := late(charge("five", throttle.TokenBucket(3, sec, 5)), 100*ms)
		b.starts(4, 0, five)
		b.at(200 * ms)
		b.start(200*ms, five)
		for i := range 200 {
			// The sixth start since 0 needs a third of a second and the jitter.
			at := (100*ms + time.Duration(i+1)*sec/3 + tick - 1).Truncate(tick)
			b.start(at, five)
			b.at(at)
		}
	}},

	{"P2_BucketJitter", func(b *bench) {
		three := late(charge("three", throttle.TokenBucket(1, sec, 3)), 100*ms)
		b.starts(3, 0, three)
		b.start(1100*ms, three)
		b.start(2100*ms, three) // the jitter is lost once and not with each
		b.at(2100*ms - tick)
		b.refused(3100*ms, three)
	}},

	{"P2_BucketJitterLongerThanItsRefill", func(b *bench) {
		two := late(charge("two", throttle.TokenBucket(10, sec, 2)), 300*ms)
		b.start(0, two)
		b.at(250 * ms)
		b.start(250*ms, two)
		b.start(400*ms, two) // the first can arrive as late as these
		b.start(650*ms, two) // and the second as late as the two before this one
	}},

	{"P6_BucketsWithOtherKinds", func(b *bench) {
		all := []throttle.Charge{
			charge("bucket", throttle.TokenBucket(1, sec, 2)), charge("sliding", throttle.PerSecond(2)),
			charge("window", throttle.FixedWindow(3, 5*sec)), charge("paced", throttle.LeakyBucket(5, sec)),
		}
		b.start(0, all...)
		b.start(200*ms, all...)
		b.start(sec+tick, all...)
		b.start(5*sec, all...)
		b.start(2*sec, all[0])
		b.start(3*sec, all[0]) // four by then, and one to come at 5 s
	}},

	{"P7_CancelInABucket", func(b *bench) {
		ten := charge("ten", throttle.TokenBucket(1, sec, 10))
		b.start(0, costing(ten, 3))
		k, g := b.book(throttle.Booking{Charges: []throttle.Charge{costing(ten, 7)}})
		waiting, later := b.book(throttle.Booking{Charges: []throttle.Charge{costing(ten, 4)}, MaxWait: -1})
		b.isStart(later, 4*sec)
		b.at(2 * sec)
		b.store.Cancel(&k, g)
		b.start(2*sec, costing(ten, 5))
		b.store.Cancel(&waiting, later)
		b.start(2*sec, costing(ten, 4))
		b.start(3*sec, ten)
	}},

	{"P7_CancelledWaitersInABucket", func(b *bench) {
		ten := charge("ten", throttle.TokenBucket(10, sec, 10))
		b.starts(10, 0, ten)
		b.leave(100, 0, ten)
		b.start(100*ms, ten)
		b.start(200*ms, ten)
	}},

	{"Store_ShadowBucket", func(b *bench) {
		dark := shadow(charge("dark", throttle.TokenBucket(1, sec, 2)))
		b.over(0, 0, dark)
		b.over(0, 0, dark)
		b.over(0, sec, dark)
	}},
}
