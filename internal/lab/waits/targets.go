package waits

import "time"

// What must be reached. Shares are of the starts that the limit and its jitter allow, unless
// they are said to be of the quota.
const (
	waitHigh     = time.Second            // of a High request behind thousands of Low requests
	waitBeside   = 400 * time.Millisecond // p99, beside an API with thousands of waiters
	usedSkewed   = 0.96                   // of a perfect scheduler's use
	waitSmall    = 800 * time.Millisecond // mean, of APIs below their own limit
	usedLeaving  = 0.96                   // of a perfect queue's use
	timesLeaving = 2.0                    // the longest wait of a perfect queue
	timesRaised  = 1.08                   // when a perfect queue's last visit starts
	passedChange = 1500 * time.Millisecond

	tokensHighLeast, tokensHighMost = 0.70, 1.05 // the estimate is ten times too high
	timesPossible                   = 0.9        // of the possible use where that is less
	tokensLowLeast, tokensLowMost   = 0.90, 1.10 // the estimate is too low
	waitRecovered                   = 5 * time.Second

	lateDisturbed = 4500 * time.Millisecond // after a ban of 2 s at most, or a slow dial
	firstAfter    = 300 * time.Millisecond  // the first start after a short ban
	nextAfterLong = 2 * time.Second         // the second start after a ban of more than a minute
	startsHiccup  = 80                      // of 100 in 5 s; 84 to 94 where the first answers are too late to be used
	waitAway      = 20 * time.Millisecond   // mean, where the store is 12 ms away
	startsAway    = 380                     // of 400 in 20 s; with the jitter and the store's 12 ms 382 are possible
	lateNext      = 200 * time.Millisecond  // the next caller, when all waiters have left

	offShares  = 0.05                   // of its part, over ten windows
	waitShare  = 300 * time.Millisecond // and its own cost over its part: a share that asks for a tenth of its part
	usedShares = 0.98

	timesOpen  = 1.15 // the mean wait of a perfect queue, and
	moreOpen   = 10 * time.Millisecond
	passedOpen = 20 * time.Millisecond

	passedNodes   = 300 * time.Millisecond // in line at several nodes on Redis
	passedFleets  = 350 * time.Millisecond // by nobody without trouble, and
	partPassed    = 0.10                   // in this number of fleets with trouble, where
	passedTrouble = 800 * time.Millisecond // is the most
	passedPauses  = 500 * time.Millisecond // in one of them

	usedFour, usedSix   = 0.85, 0.93 // of the quota, with this number of connections
	usedFlight          = 0.96
	waitFlight          = 2300 * time.Millisecond
	waitClosed          = 80 * time.Millisecond // p99 in memory, and
	waitClosedRedis     = 150 * time.Millisecond
	jainClosed          = 0.98
	usedClosed          = 0.995 // in memory, and
	usedClosedRedis     = 0.985
	lastOfCrowd         = 10400 * time.Millisecond // of 10,000 at 1000/s
	bytesOfCrowd        = 7168
	usedNear40, usedFar = 0.92, 0.85 // with Redis 40 and 150 ms away
	usedVeryFar         = 0.60       // with Redis 300 ms away, 20/s
	usefulBanning       = 0.963      // of the quota

	startsGeneration = 15 // of a process that is killed every 2 s, in real time
	startsCrash      = 35 // in virtual time, at every phase of the windows
	forgotten        = 3 * time.Second

	usedFleet, tripsFleet, jainFleet = 0.99, 1.6, 0.98 // 4 processes of 16
	tripsMany, busyMany              = 2.3, 0.08       // 60 of 4; of a processor of Redis
)
