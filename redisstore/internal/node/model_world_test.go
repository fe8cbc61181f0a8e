package node

import (
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/history"
	"github.com/fleetthrottle/throttle/store"
)

// A modelScope says what is explored: who wants what, and how often what may go
// wrong.
type modelScope struct {
	name   string
	limits []store.Limit // of the budgets
	jitter time.Duration
	plans  [][]modelWish // for each node
	ticks  []time.Duration
	most   modelChances
}

// A modelWish is a booking that a node makes, one after the other or together.
type modelWish struct {
	budgets []int
	cost    int
	maxWait time.Duration
}

// modelChances are how often what may still happen. Whatever is no tick is a fault.
type modelChances struct {
	ticks, faults                                           int
	lost, held, slow                                        int // replies, calls, both but for a while
	leaves, cancels, crashes, flushes, stale, pauses, backs int
}

// A modelWorld is one state: what Redis has, what the nodes remember, what is on its
// way, and what happened upstream. It is never changed: moves are made in a copy.
type modelWorld struct {
	clock, truth int64 // the server's time, and the true one
	began        int64
	keys         map[string]modelKey
	nodes        []*modelNode
	late         []modelLetter
	replica      *modelReplica
	starts       []modelStart
	stored       modelStarts // that the server knows of
	paused       int64       // the true end of the last pause
	left         modelChances
	focus        int   // the node that has something to send; -1: none
	lost         int   // how often the server forgot
	delay        int64 // of answers and calls: what they tell of counts as so much later than it was
	backed       int64 // how far its clock was set back
	latest       int64 // the true time of the latest start there ever was
	story        *modelStory
}

// modelStarts are a set of what a budget has, by the place of the start in the world's
// list. There are at most two budgets.
type modelStarts uint64

func (s modelStarts) has(i, budget int) bool { return s>>(2*i+budget)&1 == 1 }

func (s modelStarts) with(i int, budgets []int) modelStarts {
	for _, k := range budgets {
		s |= 1 << (2*i + k)
	}
	return s
}

// modelSome marks a set that was told, even if it is empty.
const modelSome modelStarts = 1 << 63

// of is what concerns the budgets of a call.
func (s modelStarts) of(p modelPlan) modelStarts {
	mask := modelSome
	for _, q := range p.asks {
		for i := range q.charges {
			mask |= 0x5555555555555555 << q.charges[i].Budget.Key[0]
		}
	}
	return s & mask
}

// A modelKey is what Redis has under a key, and until when, by its own clock.
type modelKey struct {
	value   string
	expires int64
	know    modelStarts // of a record: those that the server knew of when it wrote it,
	at      int64       // and when that was, by the true time
}

// A modelReplica is what Redis had when it stopped to listen to its master.
type modelReplica struct {
	keys   map[string]modelKey
	stored modelStarts
}

// A modelStart is one that Redis has booked.
type modelStart struct {
	node     string // that asked for it
	budgets  []int
	cost     int
	mark, at int64 // by the server's clock, by the true one
	phase    modelPhase
	inRow    bool    // it was not taken out yet
	missed   [2]bool // by budget: another one was booked by a server that could not know of it
}

// A modelPhase is what became of a start.
type modelPhase byte

const (
	modelBooked  modelPhase = iota // its caller may not know yet
	modelGranted                   // it is used
	modelGiven                     // up: not used
	modelVoid                      // there was never anybody to use it
)

// A modelNode is one program: what a Store of it remembers between calls.
type modelNode struct {
	name   string
	calls  int64
	memory map[string]history.Budget
	closed map[string]time.Time
	queue  *queue
	now    *batch      // what the queue is about to send, again or for the first time
	reply  *modelReply // that is still on its way
	next   int         // wish
	jobs   []*modelJob
	known  modelStarts
}

// A modelJob is a wish that became a question.
type modelJob struct {
	wish  int
	c     *op
	turn  int // how often it asked anew, because its start was over when it heard of it
	start int // that Redis booked for the question, or -1
	state modelJobState
}

type modelJobState byte

const (
	modelWaits modelJobState = iota
	modelServes
	modelLeft
	modelRefused
)

// A modelReply is an answer on its way.
type modelReply struct {
	text string
	sent time.Time
	know modelStarts
	at   int64 // when what it tells of was done, by the true time
}

// A modelLetter is a call that the network may still deliver.
type modelLetter struct {
	args []any
	plan modelPlan
	at   int64 // when it was sent
}

// A modelPlan is what a call is to do, as the node has meant it.
type modelPlan struct {
	name   string // of the node
	number int64  // of the call
	merged []mergedOps
	asks   []modelQuestion
	know   modelStarts // what it tells
}

// A modelQuestion is what a call asks for one caller.
type modelQuestion struct {
	job, turn int // the node's job, if there is one, and how often that asked before
	charges   []store.Charge
	mark      int64 // to give back first
	patient   bool
}

// A modelStory is how a world came to be.
type modelStory struct {
	before *modelStory
	move   string
}

func (s *modelStory) lines() (all []string) {
	for ; s != nil; s = s.before {
		all = append(all, s.move)
	}
	slices.Reverse(all)
	return all
}
